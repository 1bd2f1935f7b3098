//! Which part of an expression decides, and with which values: the words behind `updraft status --why HOST`.
//!
//! Nothing is decided here. The parts are those operands of `&&` and `||` that made the whole what it is; names that
//! stand for other expressions are followed.

use std::fmt;

use classad::diagnose::{Junction, Side, operands, references};
use classad::{Expr, Name, Scope, Value};

use crate::ad::{About, Scene};
use crate::expressions::Expression;
use crate::machine::Machine;
use crate::slot::SlotId;
use crate::state::Standing;

/// How deep names are followed: a circle of names has no end.
const DEPTH: u32 = 16;

/// Why a slot is what it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Why {
    /// Which slot.
    pub slot: SlotId,
    /// Where it stands.
    pub standing: Standing,
    /// The expressions that are looked at in this standing, in the order in which they are.
    pub asked: Vec<Part>,
    /// Seconds for which it lets no job in, because PREEMPT made the last one leave at once.
    pub rests_s: Option<u64>,
    /// Users whose jobs it does not let in, with the seconds that are left, because one of theirs had to leave at once.
    pub kept_out: Vec<(String, u64)>,
}

/// A part of an expression that decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The name that led here (`START`, `CPU_Idle`), if it is not a mere operand.
    pub name: Option<String>,
    /// The text.
    pub text: String,
    /// What it gives.
    pub value: Value,
    /// The names it looks at, with their values; only where it has no parts.
    pub looks_at: Vec<(String, Value)>,
    /// The operands that made it so.
    pub parts: Vec<Part>,
}

impl Machine {
    /// Explains a slot; None if there is no such slot.
    pub fn why(&self, slot: SlotId) -> Option<Why> {
        let at = self.position(slot)?;
        let standing = self.slots[at].standing;
        let scene = match standing {
            Standing::Owner
            | Standing::UnclaimedIdle
            | Standing::Benchmarking
            | Standing::Matched
            | Standing::ClaimedIdle => self.scene(at, About::Nobody),
            Standing::Busy | Standing::Suspended | Standing::Vacating | Standing::Killing => {
                self.scene(at, About::Present)
            }
        };
        let asked: &[Expression] = match standing {
            Standing::Owner
            | Standing::UnclaimedIdle
            | Standing::Matched
            | Standing::ClaimedIdle
            | Standing::Benchmarking
                if scene.ask(self.policy_at(at), Expression::IsOwner).value.truth().is_some() =>
            {
                &[Expression::IsOwner, Expression::Start]
            }
            Standing::ClaimedIdle if self.slots[at].claim.as_ref().is_some_and(|c| c.has_run) => {
                &[Expression::Start, Expression::Preempt]
            }
            Standing::Owner | Standing::Matched | Standing::ClaimedIdle | Standing::Benchmarking => {
                &[Expression::Start]
            }
            Standing::UnclaimedIdle => &[Expression::Start, Expression::RunBenchmarks],
            Standing::Busy if scene.ask(self.policy_at(at), Expression::WantSuspend).holds => {
                &[Expression::WantSuspend, Expression::Suspend]
            }
            Standing::Busy => &[Expression::WantSuspend, Expression::Preempt],
            Standing::Suspended => &[Expression::Preempt, Expression::Continue],
            Standing::Vacating => &[Expression::Kill],
            Standing::Killing => &[],
        };
        let asked = asked.iter().map(|e| {
            // The variant that decided, if the job is vanilla and has one.
            let name = scene.ask(self.policy_at(at), *e).name;
            let expr = scene.my.get(name).cloned().unwrap_or_else(|| self.policy_at(at).get(*e).clone());
            explain(Some(name), &expr, &scene, DEPTH)
        });
        let rests_s = self.rest_forbids(at).map(|_| self.rest_left_ms(at).div_ceil(1_000));
        let kept_out = self.users_kept_out(at);
        Some(Why { slot, standing, asked: asked.collect(), rests_s, kept_out })
    }
}

fn explain(name: Option<&str>, expr: &Expr, scene: &Scene, depth: u32) -> Part {
    let scope = scene.scope();
    let value = scope.eval(expr);
    let mut part = Part {
        name: name.map(str::to_owned),
        text: expr.to_old_string(),
        value,
        looks_at: Vec::new(),
        parts: Vec::new(),
    };
    let Some(depth) = depth.checked_sub(1) else { return part };
    if let Some((junction, parts)) = operands(expr) {
        let decides = deciders(junction, &part.value);
        let parts = parts.iter().filter(|p| decides(&scope.eval(p)));
        part.parts = parts.map(|p| explain(None, p, scene, depth)).collect();
    } else if let Some((name, inner)) = stands_for(expr, scene) {
        part.parts = vec![explain(Some(name.as_str()), &inner, scene, depth)];
    } else {
        part.looks_at = looks_at(expr, &scope);
    }
    part
}

/// Which operands made the whole what it is.
fn deciders(junction: Junction, whole: &Value) -> fn(&Value) -> bool {
    match (junction, whole.truth()) {
        (Junction::And, Some(true)) | (Junction::Or, Some(false)) => |_| true,
        (Junction::And, Some(false)) => |v| v.truth() == Some(false),
        (Junction::Or, Some(true)) => Value::is_true,
        // Neither: everything that leaves it open.
        (Junction::And, None) => |v| v.truth() != Some(true),
        (Junction::Or, None) => |v| v.truth() != Some(false),
    }
}

/// The expression behind a bare name.
fn stands_for(expr: &Expr, scene: &Scene) -> Option<(Name, Expr)> {
    let mut names = references(expr);
    let (side, name) = names.pop()?;
    if side == Side::Target || *expr != Expr::attribute(&name) {
        return None;
    }
    let inner = scene.my.lookup(&name)?;
    inner.as_literal().is_none().then(|| (name, inner.clone()))
}

fn looks_at(expr: &Expr, scope: &Scope<'_>) -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = Vec::new();
    for (side, name) in references(expr) {
        let text = match side {
            Side::Any => name.as_str().to_owned(),
            Side::My => format!("MY.{name}"),
            Side::Target => format!("TARGET.{name}"),
        };
        if found.iter().all(|(known, _)| !known.eq_ignore_ascii_case(&text)) {
            let value = Expr::parse(&text).map_or(Value::Undefined, |e| scope.eval(&e));
            found.push((text, value));
        }
    }
    found
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.slot, self.standing)?;
        if let Some(seconds) = self.rests_s {
            write!(
                f,
                "\n  it lets no job in for {seconds} s: PREEMPT made one leave at once that START let in"
            )?;
        }
        for (user, seconds) in &self.kept_out {
            write!(
                f,
                "\n  it lets no job of {user} in for {seconds} s: PREEMPT made one leave at once that START let in"
            )?;
        }
        for part in &self.asked {
            part.write(f, 1)?;
        }
        Ok(())
    }
}

impl Part {
    fn write(&self, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
        write!(f, "\n{:width$}", "", width = indent * 2)?;
        if let Some(name) = &self.name {
            write!(f, "{name} is {}: ", self.value)?;
        }
        f.write_str(&self.text)?;
        if self.name.is_none() {
            write!(f, " is {}", self.value)?;
        }
        for (at, (name, value)) in self.looks_at.iter().enumerate() {
            write!(f, "{}{name} = {value}", if at == 0 { "  [" } else { ", " })?;
        }
        if !self.looks_at.is_empty() {
            f.write_str("]")?;
        }
        for part in &self.parts {
            part.write(f, indent + 1)?;
        }
        Ok(())
    }
}
