//! DAG files and runs, without a pool: jobs and scripts end as the test says.

#![allow(clippy::disallowed_methods)]

mod lines;
mod lives;
mod random;
mod world;
