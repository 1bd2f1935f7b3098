//! Talking to one machine through its manager: its policy's trace, why it is as it is, its configuration, and orders; what
//! people decide about machines and labs.

use std::sync::Arc;

use api::agent::{Control, Question, SetMacro, Verb};
use api::rest::{
    ConfigRequest, ControlRequest, DrainRequest, LabLine, LabRequest, MachineReply, MachineVerb,
    RevokeRequest, StandingRequest, TransitionLine,
};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use model::event::{Condition, LabSet, MachineStanding, PoolDrained};
use model::{limits, text};
use scheduler::{Actor, StandingChange, StandingRefusal};
use serde::Deserialize;
use trust::Action;

use super::Shared;
use super::routes::{Body, body};
use super::who::{Caller, Problem};
use crate::NoAnswer;

/// Bytes of a set of macros.
const CONFIG_BYTES: usize = 64 << 10;

impl From<NoAnswer> for Problem {
    fn from(why: NoAnswer) -> Self {
        let message = why.to_string();
        match why {
            NoAnswer::NotConnected(_) => Self::new(StatusCode::NOT_FOUND, "no_such_machine", message),
            NoAnswer::Silent(_) => Self::new(StatusCode::GATEWAY_TIMEOUT, "no_answer", message),
            NoAnswer::Refused(_) => Self::new(StatusCode::CONFLICT, "refused", message),
            NoAnswer::Unavailable(why) => why.into(),
        }
    }
}

async fn ask(shared: &Shared, machine: &str, question: Question) -> Result<Json<MachineReply>, Problem> {
    let text = shared.handle.ask_machine(machine, question).await?;
    Ok(Json(MachineReply { text }))
}

#[derive(Debug, Deserialize)]
pub(super) struct After {
    #[serde(default)]
    after: u64,
}

/// What the machine's policy did lately.
pub(super) async fn transitions(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
    Query(query): Query<After>,
) -> Result<Json<Vec<TransitionLine>>, Problem> {
    caller.may(Action::Look)?;
    Ok(Json(shared.handle.traces.after(&machine, query.after)))
}

/// Has nothing new start for a while, or again.
pub(super) async fn drain(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Body<DrainRequest>,
) -> Result<StatusCode, Problem> {
    // What the owner of one machine may say about it, nobody weaker than a user may say about any.
    caller.may(Action::Submit)?;
    let DrainRequest { mut name, until_s, mut constraint, reason, machine } = body(request)?;
    if machine.is_empty() {
        caller.may(Action::ManageMachines)?;
    } else {
        caller.may_run(&shared, &machine).await?;
        if !trust::ca::is_machine_name(&machine) || !name.is_empty() || !constraint.is_empty() {
            return Err(Problem::bad("the drain of one machine needs the machine's name, and nothing else"));
        }
        // Not a name of the owner's choosing: that could be the name of a drain of others.
        name = format!("machine {machine}");
        constraint = format!("Machine == {}", text::quote(&machine));
    }
    if name.is_empty() || name != text::one_line(&name, limits::NAME_BYTES) {
        return Err(Problem::bad("a drain needs a name of at most 256 bytes, in one line"));
    }
    if constraint.len() > CONFIG_BYTES {
        return Err(Problem::bad("the constraint is longer than 64 KiB"));
    }
    let reason = text::one_line(&reason, limits::REASON_BYTES);
    let by = caller.0.name().to_owned();
    let until_ms = until_s.saturating_mul(1000);
    let said = PoolDrained { name, until_ms, constraint, by, reason };
    shared.handle.drain(said).await?.map_err(Problem::bad)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which part of which expression keeps the machine as it is.
pub(super) async fn why(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
) -> Result<Json<MachineReply>, Problem> {
    caller.may(Action::Look)?;
    ask(&shared, &machine, Question::Why(true)).await
}

/// The machine's configuration, with sources.
pub(super) async fn config(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
) -> Result<Json<MachineReply>, Problem> {
    caller.may(Action::Look)?;
    ask(&shared, &machine, Question::Config(true)).await
}

/// Sets or removes policy macros on the machine.
pub(super) async fn configure(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
    request: Body<ConfigRequest>,
) -> Result<Json<MachineReply>, Problem> {
    caller.may_run(&shared, &machine).await?;
    let ConfigRequest { set, text } = body(request)?;
    if text.len() > CONFIG_BYTES || set.len() > limits::NAME_BYTES {
        return Err(Problem::bad("a set of macros holds at most 64 KiB, its name 256 bytes"));
    }
    let by = caller.0.name().to_owned();
    ask(&shared, &machine, Question::Set(SetMacro { set, text, by })).await
}

/// Has the machine read its configuration again.
pub(super) async fn reconfigure(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
) -> Result<Json<MachineReply>, Problem> {
    caller.may_run(&shared, &machine).await?;
    ask(&shared, &machine, Question::Reconfigure(true)).await
}

/// Does something with everything that runs on the machine.
pub(super) async fn control(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
    request: Body<ControlRequest>,
) -> Result<Json<MachineReply>, Problem> {
    caller.may_run(&shared, &machine).await?;
    let request = body(request)?;
    let verb = match request.verb {
        MachineVerb::Vacate => Verb::Vacate,
        MachineVerb::Kill => Verb::Kill,
        MachineVerb::Suspend => Verb::Suspend,
        MachineVerb::Continue => Verb::Continue,
        MachineVerb::Checkpoint => Verb::Checkpoint,
        MachineVerb::Warn => Verb::Warn,
    };
    let reason = text::one_line(&request.reason, limits::REASON_BYTES);
    let (claim, bytes_per_second) = (request.claim.unwrap_or(0), request.bytes_per_second);
    let slot = text::one_line(&request.slot, limits::NAME_BYTES);
    let remaining_s = request.remaining_s;
    let control = Control { verb: verb.into(), claim, reason, bytes_per_second, slot, remaining_s };
    ask(&shared, &machine, Question::Control(control)).await
}

impl From<StandingRefusal> for Problem {
    fn from(why: StandingRefusal) -> Self {
        let message = why.to_string();
        match why {
            StandingRefusal::Admin(_) | StandingRefusal::NotByHand(_) => {
                Self::new(StatusCode::FORBIDDEN, "forbidden", message)
            }
            StandingRefusal::Unknown(_) => Self::new(StatusCode::NOT_FOUND, "no_such_machine", message),
            StandingRefusal::Held { .. }
            | StandingRefusal::NotHeld(_)
            | StandingRefusal::InUse(_)
            | StandingRefusal::TooMany => Self::new(StatusCode::CONFLICT, "refused", message),
        }
    }
}

/// Sets a machine's condition, lends it, holds it, or takes that back.
pub(super) async fn stand(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
    request: Body<StandingRequest>,
) -> Result<Json<MachineStanding>, Problem> {
    caller.may(Action::HoldMachine)?;
    let any_owner = caller.may(Action::ManageMachines).is_ok();
    let request = body(request)?;
    if !trust::ca::is_machine_name(&machine) {
        return Err(Problem::bad("a machine's name has letters, digits, dots and dashes only"));
    }
    let names = request.loaned_to.iter().chain([&request.held_by]);
    if !names.into_iter().all(|name| *name == text::one_line(name, limits::NAME_BYTES)) {
        return Err(Problem::bad("a user's name is one line of at most 256 bytes"));
    }
    let user = caller.0.name().to_owned();
    let condition = request.condition.map(|word| word.parse::<Condition>()).transpose();
    let change = StandingChange {
        condition: condition.map_err(|e| Problem::bad(e.to_string()))?,
        loaned_to: request.loaned_to,
        held_by: request.hold.map(|hold| match hold {
            false => String::new(),
            true if request.held_by.is_empty() => user.clone(),
            true => request.held_by,
        }),
        held_ms: request.held_seconds.saturating_mul(1000),
        reason: text::one_line(&request.reason, limits::REASON_BYTES),
    };
    let actor = Actor { user, any_owner };
    Ok(Json(shared.handle.set_machine(actor, machine, change).await??))
}

/// Denies a machine: its streams are closed, and neither its certificate nor a new one lets it in.
pub(super) async fn revoke(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(machine): Path<String>,
    request: Body<RevokeRequest>,
) -> Result<StatusCode, Problem> {
    caller.may(Action::ManageMachines)?;
    let RevokeRequest { reason } = body(request)?;
    if !trust::ca::is_machine_name(&machine) {
        return Err(Problem::bad("a machine's name has letters, digits, dots and dashes only"));
    }
    let (by, reason) = (caller.0.name().to_owned(), text::one_line(&reason, limits::REASON_BYTES));
    if shared.handle.revoke_machine(machine, by, reason).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        let message = "this machine is part of the manager; start that with --cpus 0 to be without it";
        Err(Problem::new(StatusCode::CONFLICT, "refused", message))
    }
}

/// The labs.
pub(super) async fn labs(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Vec<LabLine>>, Problem> {
    caller.may(Action::Look)?;
    let line = |l: scheduler::LabView| {
        let set = l.disabled.unwrap_or_default();
        LabLine { lab: l.name, machines: l.machines, disabled: set.disabled, by: set.by, reason: set.reason }
    };
    let found = shared.handle.look(scheduler::Core::labs).await?;
    Ok(Json(found.into_iter().map(line).collect()))
}

/// Enables or disables a lab.
pub(super) async fn set_lab(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Body<LabRequest>,
) -> Result<StatusCode, Problem> {
    caller.may(Action::ManageMachines)?;
    let LabRequest { lab, disabled, reason } = body(request)?;
    if lab != text::one_line(&lab, limits::NAME_BYTES) {
        return Err(Problem::bad("a lab's name is one line of at most 256 bytes"));
    }
    let (by, reason) = (caller.0.name().to_owned(), text::one_line(&reason, limits::REASON_BYTES));
    shared.handle.set_lab(LabSet { lab, disabled, by, reason }).await??;
    Ok(StatusCode::NO_CONTENT)
}
