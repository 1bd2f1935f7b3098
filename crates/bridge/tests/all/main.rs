//! Everything about the scheduler event generator that needs files: recorded cases, following, ending, damage.

mod ending;
mod follow;
mod fuzz;
mod harness;
mod plugin;
mod poll;
mod readers;
mod rotation;
mod slurm;
mod vectors;
