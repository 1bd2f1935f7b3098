//! The journal from outside: what is appended is read back, and what is damaged is noticed.

mod appending;
mod copies;
mod damage;
mod forgetting;
mod power;
mod salvaging;
mod world;
