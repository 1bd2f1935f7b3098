//! Everything about the scheduler event generator and the job state monitor that needs files and processes.

mod ages;
mod backups;
mod copies;
mod crowds;
mod doubled;
mod ending;
mod follow;
mod fuzz;
mod halves;
mod harness;
mod holes;
mod monitor;
mod plugin;
mod poll;
mod readers;
mod rotation;
mod slurm;
mod switches;
mod vectors;
