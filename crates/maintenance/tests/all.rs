//! Tests of the maintenance core, all in virtual time. One binary, so that it links once.

#![allow(clippy::disallowed_methods)]

#[path = "all/calendar.rs"]
mod calendar;
#[path = "all/checklist.rs"]
mod checklist;
#[path = "all/faults.rs"]
mod faults;
#[path = "all/fixture.rs"]
mod fixture;
#[path = "all/grammar.rs"]
mod grammar;
#[path = "all/plan.rs"]
mod plan;
#[path = "all/properties.rs"]
mod properties;
#[path = "all/stories.rs"]
mod stories;
#[path = "all/timelines.rs"]
mod timelines;
