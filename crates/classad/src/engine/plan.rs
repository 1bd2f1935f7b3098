//! How one autocluster judges slots and is judged by them: both Requirements cut into clauses, each clause
//! with the columns it depends on and its answers so far. Attributes that are conditions themselves (START)
//! are cut up too. A comparison of one attribute with a constant is answered from the column; any other
//! clause by the tree walk, once per distinct combination of values; whatever the analysis cannot see through
//! is left to the tree walk per slot.

use super::columns::{ABSENT, Columns};
use super::needs::{Analysis, MOST_EXPRESSIONS, Owner};
use super::purse::{Costs, Purse};
use super::residual::specialise;
use crate::ad::ClassAd;
use crate::diagnose;
use crate::eval::context::EvalContext;
use crate::eval::truth::Truth;
use crate::eval::{Scope, note_steps, ops};
use crate::expr::{BinOp, Expr, Node};
use crate::limits;
use crate::matching::{RANK, REQUIREMENTS};
use crate::name::{Name, Special};
use crate::value::Value;
use std::collections::HashMap;

/// How deep conditions within conditions are cut up.
const DEEPEST: usize = 4;

/// Clauses of one condition that are looked at one by one.
const MOST_CLAUSES: usize = 64;

/// What is needed to ask a question: the two sides and the world.
#[derive(Clone, Copy)]
pub(super) struct Court<'c> {
    pub(super) columns: &'c Columns,
    pub(super) job: &'c ClassAd,
    pub(super) ctx: EvalContext<'c>,
    pub(super) purse: &'c Purse,
}

/// What comes of judging beside the verdicts.
pub(super) struct Notes<'c> {
    /// Classes about which something was not asked, because nothing was left to spend.
    pub(super) deferred: Vec<u32>,
    pub(super) costs: &'c mut Costs,
}

/// One side of a comparison.
#[derive(Clone)]
enum Operand {
    Constant(Value),
    /// A slot attribute that the job cannot hide or replace.
    Slot(Name),
}

/// A question about one slot attribute that needs no evaluation.
#[derive(Clone)]
enum Simple {
    /// Is the attribute true?
    Truth,
    /// How does it compare with a constant?
    Compare { op: BinOp, constant: Value, constant_first: bool },
}

impl Simple {
    fn holds(&self, value: &Value) -> bool {
        let Simple::Compare { op, constant, constant_first } = self else { return value.is_true() };
        if let (Value::Str(a), Value::Str(b)) = (constant, value) {
            note_steps((a.as_bytes().len().min(b.as_bytes().len()) / limits::BYTES_PER_STEP) as u64);
        }
        let (a, b) = if *constant_first { (constant, value) } else { (value, constant) };
        match ops::decide(*op, a, b) {
            Some(truth) => truth == Truth::True,
            None => ops::binary(*op, a, b).is_true(),
        }
    }
}

#[derive(Clone)]
enum Test {
    /// By the code of one column, or none: 0 unknown, 1 no, 2 yes.
    One {
        column: Option<usize>,
        simple: Option<Simple>,
        answers: Vec<u8>,
    },
    Many {
        columns: Vec<usize>,
        answers: HashMap<Box<[u32]>, bool>,
    },
    /// A slot attribute that is a condition of its own: what it says depends on its code.
    Condition {
        column: usize,
        by_code: HashMap<u32, Conjunction>,
    },
}

#[derive(Clone)]
struct Clause {
    expr: Expr,
    owner: Owner,
    test: Test,
}

impl Clause {
    /// The answer of the tree walk on the class's sample; None when nothing is left to spend on it.
    fn ask(expr: &Expr, owner: Owner, class: u32, court: Court<'_>) -> Option<bool> {
        let slot = &court.columns.classes[class as usize].sample;
        let (my, target) = if owner == Owner::Job { (court.job, slot) } else { (slot, court.job) };
        court.purse.pay(|| Scope::of(my).target(target).context(court.ctx).is_true(expr))
    }

    /// Keeps the classes for which the clause holds; true if it cannot be sure about them.
    fn filter(&mut self, classes: &mut Vec<u32>, court: Court<'_>, notes: &mut Notes<'_>) -> bool {
        let (expr, owner) = (&self.expr, self.owner);
        match &mut self.test {
            Test::One { column: None, answers, .. } => {
                // The same for every slot, and asked once: however little there is to spend, each time something is known more.
                answers.resize(1, 0);
                if answers[0] == 0
                    && let Some(&class) = classes.first()
                {
                    match Self::ask(expr, owner, class, court) {
                        Some(holds) => answers[0] = 1 + u8::from(holds),
                        None => notes.deferred.append(classes),
                    }
                }
                if answers[0] == 1 {
                    classes.clear();
                }
                false
            }
            Test::One { column: Some(column), simple, answers } => {
                let column = &court.columns.columns[*column];
                answers.resize(column.dictionary.len() + 1, 0);
                classes.retain(|&class| {
                    let code = column.class_codes[class as usize] as usize;
                    if answers[code] == 0 {
                        let literal = match code.checked_sub(1) {
                            None => Some(&Value::Undefined),
                            Some(at) => column.dictionary[at].as_literal(),
                        };
                        let holds = match (&simple, literal) {
                            (Some(simple), Some(value)) => Some(court.purse.owe(|| simple.holds(value))),
                            _ => Self::ask(expr, owner, class, court),
                        };
                        let Some(holds) = holds else {
                            notes.deferred.push(class);
                            return false;
                        };
                        answers[code] = 1 + u8::from(holds);
                    }
                    answers[code] == 2
                });
                false
            }
            Test::Many { columns, answers } => {
                classes.retain(|&class| {
                    let code = |&column: &usize| court.columns.columns[column].class_codes[class as usize];
                    let key: Box<[u32]> = columns.iter().map(code).collect();
                    if let Some(known) = answers.get(&key) {
                        return *known;
                    }
                    let Some(holds) = Self::ask(expr, owner, class, court) else {
                        notes.deferred.push(class);
                        return false;
                    };
                    answers.insert(key, holds);
                    holds
                });
                false
            }
            Test::Condition { column, by_code } => {
                let mut unsure = false;
                let mut kept = Vec::new();
                let dictionary = &court.columns.columns[*column].dictionary;
                let mut groups = court.columns.by_code(*column, classes);
                notes.costs.sort(*column, &mut groups);
                for (code, mut group) in groups {
                    if let Some(conjunction) = by_code.get_mut(&code) {
                        let (left, asked) = (court.purse.left(), group.len());
                        unsure |= conjunction.filter(&mut group, court, notes);
                        notes.costs.note_group(*column, code, left - court.purse.left(), asked);
                        kept.append(&mut group);
                    } else if let Some(at) = code.checked_sub(1) {
                        // A value that came after the plan was made; an expression would have had it made anew.
                        match dictionary[at as usize].as_literal() {
                            Some(value) if value.is_true() => kept.append(&mut group),
                            Some(_) => {}
                            None => {
                                unsure = true;
                                kept.append(&mut group);
                            }
                        }
                    }
                }
                *classes = kept;
                unsure
            }
        }
    }

    /// Cheap questions that reject much come first.
    fn cost(&self) -> usize {
        match &self.test {
            Test::One { column: None, .. } => 0,
            Test::One { simple: Some(_), .. } => 1,
            Test::One { .. } => 2,
            Test::Condition { .. } => 3,
            Test::Many { columns, .. } => 2 + columns.len(),
        }
    }
}

/// The clauses of one condition.
#[derive(Clone, Default)]
struct Conjunction {
    clauses: Vec<Clause>,
    /// Some clause needs the tree walk.
    unsure: bool,
}

impl Conjunction {
    fn of(
        expr: &Expr,
        owner: Owner,
        columns: &mut Columns,
        job: &ClassAd,
        path: &[(Owner, Name)],
    ) -> Conjunction {
        let mut made = Conjunction::default();
        for expr in few_clauses(expr) {
            match clause(expr, owner, columns, job, path) {
                Some(clause) => made.clauses.push(clause),
                None => made.unsure = true,
            }
        }
        made.clauses.sort_by_key(Clause::cost);
        made
    }

    /// Keeps the classes for which every clause holds; true if only the ads can tell.
    fn filter(&mut self, classes: &mut Vec<u32>, court: Court<'_>, notes: &mut Notes<'_>) -> bool {
        let mut unsure = self.unsure;
        for clause in &mut self.clauses {
            if classes.is_empty() {
                return false;
            }
            unsure |= clause.filter(classes, court, notes);
        }
        unsure
    }
}

/// The clauses of a condition; of very many the last ones stay together, since each is analysed by itself.
fn few_clauses(expr: &Expr) -> Vec<Expr> {
    let mut clauses = diagnose::clauses(expr);
    if clauses.len() > MOST_CLAUSES {
        let rest = clauses.split_off(MOST_CLAUSES - 1);
        let all = |a: Expr, b: Expr| Expr::node(Node::Binary(BinOp::And, a, b));
        clauses.extend(rest.into_iter().reduce(all));
    }
    clauses
}

/// One clause; None if it cannot be analysed.
fn clause(
    expr: Expr,
    owner: Owner,
    columns: &mut Columns,
    job: &ClassAd,
    path: &[(Owner, Name)],
) -> Option<Clause> {
    if let Some(Operand::Slot(name)) = operand(&expr, owner, job)
        && path.len() < DEEPEST
        && let Some(test) = condition(&name, columns, job, path)
    {
        return Some(Clause { expr, owner, test });
    }
    let mut analysis = Analysis::new(columns, job).within(path);
    analysis.expr(&expr, owner);
    let needs = analysis.needs;
    if needs.opaque {
        return None;
    }
    let simple = simple(&expr, owner, job);
    let expr = if owner == Owner::Job { specialise(&expr, job) } else { expr };
    let columns: Vec<usize> = needs.columns.into_iter().collect();
    let test = match columns.as_slice() {
        [] | [_] => Test::One { column: columns.first().copied(), simple, answers: Vec::new() },
        _ => Test::Many { columns, answers: HashMap::new() },
    };
    Some(Clause { expr, owner, test })
}

/// A slot attribute as a condition of its own, if some slot has an expression there.
fn condition(name: &Name, columns: &mut Columns, job: &ClassAd, path: &[(Owner, Name)]) -> Option<Test> {
    let circle = *name == *REQUIREMENTS || path.iter().any(|(owner, n)| *owner == Owner::Slot && n == name);
    let column = columns.column(name);
    let exprs = &columns.columns[column].dictionary;
    let plain = exprs.iter().all(|e| e.as_literal().is_some());
    if circle || plain || exprs.len() > MOST_EXPRESSIONS {
        return None;
    }
    let exprs = exprs.clone();
    let mut inner: Vec<(Owner, Name)> = path.to_vec();
    inner.push((Owner::Slot, name.clone()));
    let mut by_code = HashMap::new();
    for (at, expr) in exprs.iter().enumerate() {
        by_code.insert(at as u32 + 1, Conjunction::of(expr, Owner::Slot, columns, job, &inner));
    }
    Some(Test::Condition { column, by_code })
}

fn simple(expr: &Expr, owner: Owner, job: &ClassAd) -> Option<Simple> {
    if let Some(Operand::Slot(_)) = operand(expr, owner, job) {
        return Some(Simple::Truth);
    }
    let Some(Node::Binary(op, a, b)) = expr.as_node() else { return None };
    if matches!(op, BinOp::And | BinOp::Or) {
        return None;
    }
    match (operand(a, owner, job)?, operand(b, owner, job)?) {
        (Operand::Slot(_), Operand::Constant(constant)) => {
            Some(Simple::Compare { op: *op, constant, constant_first: false })
        }
        (Operand::Constant(constant), Operand::Slot(_)) => {
            Some(Simple::Compare { op: *op, constant, constant_first: true })
        }
        _ => None,
    }
}

fn operand(expr: &Expr, owner: Owner, job: &ClassAd) -> Option<Operand> {
    let of_job = |name: &Name| match job.lookup(name) {
        Some(inner) => inner.as_literal().cloned().map(Operand::Constant),
        None => Some(Operand::Constant(Value::Undefined)),
    };
    let Some(node) = expr.as_node() else { return expr.as_literal().cloned().map(Operand::Constant) };
    match node {
        Node::Paren(inner) => operand(inner, owner, job),
        Node::Ref(name) if name.special() == Special::None => match (owner, job.lookup(name)) {
            (Owner::Job, Some(_)) => of_job(name),
            (_, None) => Some(Operand::Slot(name.clone())),
            // The slot's own, if it has one; else the job's: not one thing.
            (Owner::Slot, Some(_)) => None,
        },
        Node::Select(base, name) if name.special() == Special::None => {
            let Some(Node::Ref(side)) = base.as_node() else { return None };
            let side = match side.special() {
                Special::My => owner,
                Special::Target | Special::Other => owner.other(),
                _ => return None,
            };
            if side == Owner::Job { of_job(name) } else { Some(Operand::Slot(name.clone())) }
        }
        _ => None,
    }
}

/// What a pair of autocluster and class comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Verdict {
    Unknown = 0,
    No = 1,
    Yes = 2,
    /// Only the ads themselves can tell.
    Ask = 3,
}

/// The clauses of an autocluster against the slots of one schema.
#[derive(Clone)]
pub(super) struct Plan {
    job: Option<Conjunction>,
    /// Requirements of slots, by their code.
    slots: HashMap<u32, Conjunction>,
    requirements: usize,
    /// Rank may be remembered per class.
    pub(super) rank_keyed: bool,
    opaque: bool,
}

impl Plan {
    pub(super) fn of(job: &ClassAd, columns: &mut Columns) -> Plan {
        let requirements = columns.column(&REQUIREMENTS);
        let mine = job.lookup(&REQUIREMENTS).map(|expr| Conjunction::of(expr, Owner::Job, columns, job, &[]));
        let rank_keyed = job.lookup(&RANK).is_none_or(|expr| {
            let mut analysis = Analysis::new(columns, job);
            analysis.expr(expr, Owner::Job);
            !analysis.needs.opaque
        });
        // All distinct Requirements are cut up now: doing it later could add columns while classes are read.
        let exprs: Vec<Expr> = columns.columns[requirements].dictionary.clone();
        let mut slots = HashMap::new();
        for (at, expr) in exprs.iter().take(MOST_EXPRESSIONS).enumerate() {
            slots.insert(at as u32 + 1, Conjunction::of(expr, Owner::Slot, columns, job, &[]));
        }
        Plan { job: mine, slots, requirements, rank_keyed, opaque: job.has_specials() }
    }

    /// Judges classes, all at once: one clause after the other over those that are left.
    /// What could not be paid for stays unknown; true if there is nothing of that.
    pub(super) fn judge(
        &mut self,
        mut classes: Vec<u32>,
        verdicts: &mut [Verdict],
        court: Court<'_>,
        costs: &mut Costs,
    ) -> bool {
        let mut notes = Notes { deferred: Vec::new(), costs };
        let mut set = |classes: &[u32], verdict: Verdict| {
            for &class in classes {
                verdicts[class as usize] = verdict;
            }
        };
        set(&classes, Verdict::No);
        let Some(mine) = &mut self.job else { return true };
        let requirements = &court.columns.columns[self.requirements];
        classes.retain(|&class| requirements.class_codes[class as usize] != ABSENT);
        if self.opaque {
            set(&classes, Verdict::Ask);
            return true;
        }
        classes.retain(|&class| {
            let opaque = court.columns.classes[class as usize].opaque;
            if opaque {
                set(&[class], Verdict::Ask);
            }
            !opaque
        });
        let unsure = mine.filter(&mut classes, court, &mut notes);
        let mut groups = court.columns.by_code(self.requirements, &classes);
        notes.costs.sort(self.requirements, &mut groups);
        for (code, mut group) in groups {
            let (left, asked) = (court.purse.left(), group.len());
            let unsure = match self.slots.get_mut(&code) {
                Some(theirs) => theirs.filter(&mut group, court, &mut notes) || unsure,
                None => true,
            };
            notes.costs.note_group(self.requirements, code, left - court.purse.left(), asked);
            set(&group, if unsure { Verdict::Ask } else { Verdict::Yes });
        }
        set(&notes.deferred, Verdict::Unknown);
        notes.deferred.is_empty()
    }
}
