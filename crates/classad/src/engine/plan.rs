//! How one autocluster judges slots and is judged by them: both Requirements cut into clauses, each clause
//! with the columns it depends on and its answers so far. A clause is evaluated by the tree walk once per
//! distinct combination of values; whatever the analysis cannot see through is left to the tree walk per slot.

use super::columns::{ABSENT, Columns};
use crate::ad::ClassAd;
use crate::diagnose;
use crate::eval::Scope;
use crate::eval::context::EvalContext;
use crate::expr::{Call, Expr, Node};
use crate::matching::{RANK, REQUIREMENTS};
use crate::name::{Name, Special};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Pools write a handful of policies; one with more different expressions than this is not analysed.
const MOST_EXPRESSIONS: usize = 2048;

/// Whose names an expression means when it says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Owner {
    Job,
    Slot,
}

impl Owner {
    fn other(self) -> Owner {
        match self {
            Owner::Job => Owner::Slot,
            Owner::Slot => Owner::Job,
        }
    }
}

/// What an expression depends on.
#[derive(Default)]
pub(super) struct Needs {
    /// Columns of slot attributes.
    pub(super) columns: BTreeSet<usize>,
    /// Attributes the job was asked for.
    pub(super) job_names: HashSet<Name>,
    /// Something the analysis cannot see through: whole ads, nested scopes, the clock.
    pub(super) opaque: bool,
}

/// Collects what an expression depends on, following references through both ads.
pub(super) struct Analysis<'e> {
    columns: &'e mut Columns,
    job: &'e ClassAd,
    seen: HashSet<(Owner, Name)>,
    pub(super) needs: Needs,
}

impl<'e> Analysis<'e> {
    pub(super) fn new(columns: &'e mut Columns, job: &'e ClassAd) -> Analysis<'e> {
        Analysis { columns, job, seen: HashSet::new(), needs: Needs::default() }
    }

    pub(super) fn expr(&mut self, expr: &Expr, owner: Owner) {
        self.follow(vec![(expr.clone(), owner)]);
    }

    /// What a slot attribute depends on, whatever it is in each slot.
    pub(super) fn slot_attribute(&mut self, name: &Name) {
        self.start(name, Owner::Slot);
    }

    /// What a job attribute depends on.
    pub(super) fn job_attribute(&mut self, name: &Name) {
        self.start(name, Owner::Job);
    }

    fn start(&mut self, name: &Name, owner: Owner) {
        let mut todo = Vec::new();
        self.attribute(name, owner, &mut todo);
        self.follow(todo);
    }

    fn follow(&mut self, mut todo: Vec<(Expr, Owner)>) {
        while let Some((expr, owner)) = todo.pop() {
            let Some(node) = expr.as_node() else { continue };
            match node {
                Node::RelLit(_) => {}
                Node::Ref(name) if name.special() == Special::None => {
                    self.mention(name, owner, &mut todo);
                    // Only a side that lacks the name asks the other; slots differ, so for them both count.
                    if owner == Owner::Slot || self.job.lookup(name).is_none() {
                        self.mention(name, owner.other(), &mut todo);
                    }
                }
                Node::Select(base, name) => match base.as_node() {
                    Some(Node::Ref(side)) if name.special() == Special::None => match side.special() {
                        Special::My => self.mention(name, owner, &mut todo),
                        Special::Target | Special::Other => self.mention(name, owner.other(), &mut todo),
                        _ => self.needs.opaque = true,
                    },
                    _ => self.needs.opaque = true,
                },
                Node::Ref(_) | Node::RootRef(_) | Node::Ad(_) => self.needs.opaque = true,
                Node::Unary(_, a) | Node::Paren(a) => todo.push((a.clone(), owner)),
                Node::Binary(_, a, b) | Node::Elvis(a, b) | Node::Subscript(a, b) => {
                    todo.extend([(a.clone(), owner), (b.clone(), owner)]);
                }
                Node::Ternary(a, b, c) => {
                    todo.extend([(a.clone(), owner), (b.clone(), owner), (c.clone(), owner)]);
                }
                Node::Call(Call { func, args, .. }) => {
                    if func.is_some_and(|f| !f.is_pure()) {
                        self.needs.opaque = true;
                    }
                    todo.extend(args.iter().map(|arg| (arg.clone(), owner)));
                }
                Node::List(items) => todo.extend(items.iter().map(|item| (item.clone(), owner))),
            }
        }
    }

    fn mention(&mut self, name: &Name, owner: Owner, todo: &mut Vec<(Expr, Owner)>) {
        // A Requirements inside a Requirements is a circle, which clauses taken one by one would not notice.
        if *name == *REQUIREMENTS {
            self.needs.opaque = true;
        }
        self.attribute(name, owner, todo);
    }

    fn attribute(&mut self, name: &Name, owner: Owner, todo: &mut Vec<(Expr, Owner)>) {
        if !self.seen.insert((owner, name.clone())) {
            return;
        }
        match owner {
            Owner::Job => {
                self.needs.job_names.insert(name.clone());
                todo.extend(self.job.lookup(name).map(|expr| (expr.clone(), Owner::Job)));
            }
            Owner::Slot => {
                let column = self.columns.column(name);
                self.needs.columns.insert(column);
                let exprs = self.columns.columns[column].dictionary.iter().filter(|e| e.as_node().is_some());
                let before = todo.len();
                todo.extend(exprs.take(MOST_EXPRESSIONS).map(|e| (e.clone(), Owner::Slot)));
                self.needs.opaque |= todo.len() - before == MOST_EXPRESSIONS;
            }
        }
    }
}

/// The answers of a clause so far, by the codes of its columns.
enum Memo {
    /// 0 unknown, 1 no, 2 yes.
    One(Vec<u8>),
    Many(HashMap<Box<[u32]>, bool>),
}

pub(super) struct Clause {
    expr: Expr,
    owner: Owner,
    columns: Vec<usize>,
    memo: Memo,
}

impl Clause {
    fn holds(&mut self, codes: &[u32], job: &ClassAd, slot: &ClassAd, ctx: EvalContext<'_>) -> bool {
        let ask = |expr: &Expr| {
            let (my, target) = if self.owner == Owner::Job { (job, slot) } else { (slot, job) };
            Scope::of(my).target(target).context(ctx).eval(expr).is_true()
        };
        match &mut self.memo {
            Memo::One(answers) => {
                let code = self.columns.first().map_or(0, |&column| codes[column] as usize);
                if code >= answers.len() {
                    answers.resize(code + 1, 0);
                }
                if answers[code] == 0 {
                    answers[code] = 1 + u8::from(ask(&self.expr));
                }
                answers[code] == 2
            }
            Memo::Many(answers) => {
                let key: Box<[u32]> = self.columns.iter().map(|&column| codes[column]).collect();
                *answers.entry(key).or_insert_with(|| ask(&self.expr))
            }
        }
    }
}

/// The clauses of one Requirements.
#[derive(Default)]
pub(super) struct Conjunction {
    clauses: Vec<Clause>,
    /// Some clause needs the tree walk.
    unsure: bool,
}

impl Conjunction {
    fn of(expr: &Expr, owner: Owner, columns: &mut Columns, job: &ClassAd) -> Conjunction {
        let mut made = Conjunction::default();
        for expr in diagnose::clauses(expr) {
            let mut analysis = Analysis::new(columns, job);
            analysis.expr(&expr, owner);
            let needs = analysis.needs;
            if needs.opaque {
                made.unsure = true;
                continue;
            }
            let expr = if owner == Owner::Job { super::residual::specialise(&expr, job) } else { expr };
            let columns: Vec<usize> = needs.columns.into_iter().collect();
            let memo = if columns.len() <= 1 { Memo::One(Vec::new()) } else { Memo::Many(HashMap::new()) };
            made.clauses.push(Clause { expr, owner, columns, memo });
        }
        // What is decided by one column rejects most slots for the least work.
        made.clauses.sort_by_key(|clause| clause.columns.len());
        made
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
        let mine = job.lookup(&REQUIREMENTS).map(|expr| Conjunction::of(expr, Owner::Job, columns, job));
        let rank_keyed = job.lookup(&RANK).is_none_or(|expr| {
            let mut analysis = Analysis::new(columns, job);
            analysis.expr(expr, Owner::Job);
            !analysis.needs.opaque
        });
        // All distinct Requirements are cut up now: doing it later could add columns while classes are read.
        let exprs: Vec<Expr> = columns.columns[requirements].dictionary.clone();
        let mut slots = HashMap::new();
        for (at, expr) in exprs.iter().take(MOST_EXPRESSIONS).enumerate() {
            slots.insert(at as u32 + 1, Conjunction::of(expr, Owner::Slot, columns, job));
        }
        Plan { job: mine, slots, requirements, rank_keyed, opaque: job.has_specials() }
    }

    pub(super) fn judge(
        &mut self,
        codes: &[u32],
        opaque: bool,
        job: &ClassAd,
        slot: &ClassAd,
        ctx: EvalContext<'_>,
    ) -> Verdict {
        let Some(mine) = &mut self.job else { return Verdict::No };
        let code = codes[self.requirements];
        if code == ABSENT {
            return Verdict::No;
        }
        if opaque || self.opaque {
            return Verdict::Ask;
        }
        let Some(theirs) = self.slots.get_mut(&code) else { return Verdict::Ask };
        let unsure = mine.unsure || theirs.unsure;
        let mut clauses = mine.clauses.iter_mut().chain(&mut theirs.clauses);
        if !clauses.all(|clause| clause.holds(codes, job, slot, ctx)) {
            return Verdict::No;
        }
        if unsure { Verdict::Ask } else { Verdict::Yes }
    }
}
