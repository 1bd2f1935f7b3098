//! The lab's desk: recipes, systems, labs, loans, and everything that happens to them, as one automaton.
//!
//! [`Desk::handle`] takes one event and the time, changes the state, runs the pass of the planner to its end, and says
//! what is to be done. It is deterministic, so the log of events is the durable state: [`Desk::replay`] rebuilds it.
//! Events from machines carry the attempt that they are about; late and doubled ones change nothing.
//!
//! - `state`: what is kept; `event`: what comes in and goes out
//! - `submit`, `progress`, `place`, `hold`: sets; their recipes; systems and labs; people with a system in their hands
//! - `turn`: what every event ends with; `sweep`: repair only
//! - `show`: the notation of the scenarios

mod event;
mod hold;
mod place;
mod progress;
mod show;
mod state;
mod submit;
mod sweep;
mod turn;

pub use event::{Effect, Event, Step, SystemSpec};
pub use state::{Desk, Guest, Lab, Recipe, Set, Settings, System};
pub use submit::{GuestSpec, RecipeSpec, SetSpec};
