//! Talking to one machine through its manager: its policy's trace, why it is as it is, its configuration, and orders; what
//! people decide about machines and labs.

use api::agent::{Control, Question, SetMacro, Verb};
use api::rest::{
    ConfigRequest, ControlRequest, DrainRequest, LabLine, LabRequest, LabsReply, MachineReply, MachineVerb,
    MaintenanceReport, RevokeRequest, StandingRequest, TransitionLine,
};
use axum::Json;
use axum::http::StatusCode;
use model::event::{Condition, MachineStanding, PoolDrained};
use model::{MachineName, limits, text};
use scheduler::{Actor, HoldStage, LabChange, StandingChange, StandingRefusal};
use schemars::JsonSchema;
use serde::Deserialize;
use trust::Action;

use super::Shared;
use super::pool::{ListQuery, page_of};
use super::route::{Call, Done, Large};
use super::who::Problem;
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

async fn ask(
    shared: &Shared,
    machine: &MachineName,
    question: Question,
) -> Result<Json<MachineReply>, Problem> {
    let text = shared.handle.ask_machine(machine, question).await?;
    Ok(Json(MachineReply { text }))
}

/// From where on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    /// Only what comes after this position.
    #[serde(default)]
    after: u64,
}

/// What the machine's policy did lately.
pub(super) async fn transitions(
    call: Call<MachineName, After>,
) -> Result<Json<Vec<TransitionLine>>, Problem> {
    let mut lines = call.shared.handle.traces.after(&call.part, call.query.after);
    lines.truncate(limits::PAGE);
    Ok(Json(lines))
}

/// Has nothing new start for a while, or again.
pub(super) async fn drain(call: Call<(), (), Json<DrainRequest>>) -> Result<Done, Problem> {
    // What the owner of one machine may say about it, nobody weaker than a user may say about any.
    let (shared, caller) = (call.shared, call.caller);
    let Json(DrainRequest { mut name, until_s, mut constraint, reason, machine }) = call.body;
    if machine.is_empty() {
        caller.may(Action::ManageMachines)?;
    } else {
        caller.may_run(&shared, &machine).await?;
        let machine = machine.parse::<MachineName>().map_err(|e| Problem::bad(e.to_string()))?;
        if !name.is_empty() || !constraint.is_empty() {
            return Err(Problem::bad("the drain of one machine needs the machine's name, and nothing else"));
        }
        // Not a name of the owner's choosing: that could be the name of a drain of others.
        name = format!("machine {machine}");
        constraint = format!("Machine == {}", text::quote(machine.as_str()));
    }
    if name.is_empty() || name != text::one_line(&name, limits::NAME_BYTES) {
        return Err(Problem::bad("a drain needs a name of at most 256 bytes, in one line"));
    }
    if constraint.len() > CONFIG_BYTES {
        return Err(Problem::bad("the constraint is longer than 64 KiB"));
    }
    let reason = text::one_line(&reason, limits::REASON_BYTES);
    let by = caller.principal.name().to_owned();
    let until_ms = until_s.saturating_mul(1000);
    let said = PoolDrained { name, until_ms, constraint, by, reason };
    shared.handle.drain(said).await?.map_err(Problem::bad)?;
    Ok(Done)
}

/// Which part of which expression keeps the machine as it is.
pub(super) async fn why(call: Call<MachineName>) -> Result<Json<MachineReply>, Problem> {
    ask(&call.shared, &call.part, Question::Why(true)).await
}

/// The machine's configuration, with sources.
pub(super) async fn config(call: Call<MachineName>) -> Result<Json<MachineReply>, Problem> {
    ask(&call.shared, &call.part, Question::Config(true)).await
}

/// Sets or removes policy macros on the machine.
pub(super) async fn configure(
    call: Call<MachineName, (), Json<ConfigRequest>>,
) -> Result<Json<MachineReply>, Problem> {
    let by = call.user();
    let Json(ConfigRequest { set, text }) = call.body;
    if text.len() > CONFIG_BYTES || set.len() > limits::NAME_BYTES {
        return Err(Problem::bad("a set of macros holds at most 64 KiB, its name 256 bytes"));
    }
    ask(&call.shared, &call.part, Question::Set(SetMacro { set, text, by })).await
}

/// Has the machine read its configuration again.
pub(super) async fn reconfigure(call: Call<MachineName>) -> Result<Json<MachineReply>, Problem> {
    ask(&call.shared, &call.part, Question::Reconfigure(true)).await
}

/// Has the manager read its configuration again.
pub(super) async fn reconfigure_manager(call: Call) -> Result<Json<MachineReply>, Problem> {
    let told = call.shared.reload().await.map_err(|why| {
        let message = format!("refused; the old configuration stays in force:\n{why}");
        Problem::new(StatusCode::CONFLICT, "refused", message)
    })?;
    let told: String = told.iter().map(|line| format!("\n{line}")).collect();
    Ok(Json(MachineReply { text: format!("read again{told}") }))
}

/// Does something with everything that runs on the machine.
pub(super) async fn control(
    call: Call<MachineName, (), Json<ControlRequest>>,
) -> Result<Json<MachineReply>, Problem> {
    let Json(request) = call.body;
    ask(&call.shared, &call.part, Question::Control(control_of(&request))).await
}

/// An order as machines get it.
pub(crate) fn control_of(request: &ControlRequest) -> Control {
    let verb = match request.verb {
        MachineVerb::Vacate => Verb::Vacate,
        MachineVerb::Kill => Verb::Kill,
        MachineVerb::Suspend => Verb::Suspend,
        MachineVerb::Continue => Verb::Continue,
        MachineVerb::Checkpoint => Verb::Checkpoint,
        MachineVerb::Warn => Verb::Warn,
    };
    Control {
        verb: verb.into(),
        claim: request.claim.unwrap_or(0),
        reason: text::one_line(&request.reason, limits::REASON_BYTES),
        bytes_per_second: request.bytes_per_second,
        slot: text::one_line(&request.slot, limits::NAME_BYTES),
        remaining_s: request.remaining_s,
    }
}

/// What maintenance is carried out, by whom.
pub(super) async fn maintenance(call: Call) -> Result<Json<Vec<MaintenanceReport>>, Problem> {
    Ok(Json(call.shared.handle.windows.reports()))
}

/// Takes the word of somebody who carries maintenance out.
pub(super) async fn report_maintenance(call: Call<(), (), Json<MaintenanceReport>>) -> Result<Done, Problem> {
    let Json(report) = call.body;
    call.shared.handle.windows.take(report, crate::writer::wall_ms()).map_err(Problem::bad)?;
    Ok(Done)
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
            | StandingRefusal::TooManyTrees
            | StandingRefusal::TooMany => Self::new(StatusCode::CONFLICT, "refused", message),
        }
    }
}

/// Sets a machine's condition, lends it, holds it, or takes that back.
pub(super) async fn stand(
    call: Call<MachineName, (), Json<StandingRequest>>,
) -> Result<Json<MachineStanding>, Problem> {
    let (user, any_owner) = (call.user(), call.caller.may(Action::ManageMachines).is_ok());
    let (machine, Json(request)) = (call.part, call.body);
    let allow = request.allow.iter().flatten();
    if allow.clone().count() > 1_000 {
        return Err(Problem::bad("at most 1000 users and groups"));
    }
    let names = request.loaned_to.iter().chain([&request.held_by]).chain(allow);
    if !names.into_iter().all(|name| *name == text::one_line(name, limits::NAME_BYTES)) {
        return Err(Problem::bad("a user's name is one line of at most 256 bytes"));
    }
    let condition = request.condition.map(|word| word.parse::<Condition>()).transpose();
    let stage = request.stage.map(|word| {
        let unknown = || Problem::bad("a stage is waiting, installing or running");
        HoldStage::from_word(&word).ok_or_else(unknown)
    });
    let change = StandingChange {
        stage: stage.transpose()?,
        condition: condition.map_err(|e| Problem::bad(e.to_string()))?,
        loaned_to: request.loaned_to,
        allow: request.allow,
        held_by: request.hold.map(|hold| match hold {
            false => String::new(),
            true if request.held_by.is_empty() => user.clone(),
            true => request.held_by,
        }),
        held_ms: request.held_seconds.saturating_mul(1000),
        reason: text::one_line(&request.reason, limits::REASON_BYTES),
    };
    let actor = Actor { user, any_owner };
    Ok(Json(call.shared.handle.set_machine(actor, machine, change).await??))
}

/// Denies a machine: its streams are closed, and neither its certificate nor a new one lets it in.
pub(super) async fn revoke(call: Call<MachineName, (), Json<RevokeRequest>>) -> Result<Done, Problem> {
    let by = call.user();
    let (machine, Json(RevokeRequest { reason })) = (call.part, call.body);
    let reason = text::one_line(&reason, limits::REASON_BYTES);
    if call.shared.handle.revoke_machine(machine, by, reason).await? {
        Ok(Done)
    } else {
        let message = "this machine is part of the manager; start that with --cpus 0 to be without it";
        Err(Problem::new(StatusCode::CONFLICT, "refused", message))
    }
}

/// The labs.
pub(super) async fn labs(call: Call<(), ListQuery>) -> Result<Large<LabsReply>, Problem> {
    let line = |l: scheduler::LabView| {
        let scheduler::LabView { name: lab, machines, set } = l;
        let (disabled, removed, trees) = (set.disabled, set.removed, set.trees);
        LabLine { lab, machines, disabled, removed, trees, by: set.by, reason: set.reason }
    };
    let found = call.look(scheduler::Core::labs).await?;
    Ok(Large::new(move || {
        let (page, next) = page_of(found, &call.query, |l| l.name.clone());
        LabsReply { labs: page.into_iter().map(line).collect(), next }
    }))
}

/// Enables, disables or removes a lab, and says which distro trees it has.
pub(super) async fn set_lab(call: Call<(), (), Json<LabRequest>>) -> Result<Done, Problem> {
    let by = call.user();
    let Json(LabRequest { lab, disabled, add_trees, remove_trees, remove, reason }) = call.body;
    if lab != text::one_line(&lab, limits::NAME_BYTES) {
        return Err(Problem::bad("a lab's name is one line of at most 256 bytes"));
    }
    let reason = text::one_line(&reason, limits::REASON_BYTES);
    let is_tree = |tree: &String| {
        !tree.is_empty() && *tree == text::one_line(tree, limits::NAME_BYTES) && !tree.contains([',', ' '])
    };
    if !add_trees.iter().chain(&remove_trees).all(is_tree) {
        return Err(Problem::bad("a tree's name is at most 256 bytes without blanks and commas"));
    }
    let nothing = disabled.is_none() && !remove && add_trees.is_empty() && remove_trees.is_empty();
    if nothing {
        return Err(Problem::bad("what about the lab? `disabled`, `add_trees`, `remove_trees` or `remove`"));
    }
    let change = LabChange { lab, disabled, add_trees, remove_trees, remove, by, reason };
    call.shared.handle.set_lab(change).await??;
    Ok(Done)
}
