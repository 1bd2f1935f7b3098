//! What an expression depends on: which columns of the slots, which attributes of the job, or more than an
//! analysis can see.

use super::columns::Columns;
use crate::ad::ClassAd;
use crate::eval::note_steps;
use crate::expr::{Call, Expr, Node};
use crate::func::Func;
use crate::matching::REQUIREMENTS;
use crate::name::{Name, Special};
use std::collections::{BTreeSet, HashSet};

/// Pools write a handful of policies; one with more different expressions than this is not analysed.
pub(super) const MOST_EXPRESSIONS: usize = 2048;

/// Expressions that are looked through for one answer; whoever needs more is asked each time.
const MOST_NODES: usize = 50_000;

/// Whose names an expression means when it says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Owner {
    Job,
    Slot,
}

impl Owner {
    pub(super) fn other(self) -> Owner {
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
    /// The value is not one of the columns' alone: whole ads, nested scopes, the clock. It must be asked for each time.
    pub(super) opaque: bool,
    /// Names are looked at that the analysis does not find, such as those in a text that is evaluated.
    pub(super) unseen: bool,
}

/// Collects what an expression depends on, following references through both ads.
pub(super) struct Analysis<'e> {
    columns: &'e mut Columns,
    job: &'e ClassAd,
    seen: HashSet<(Owner, Name)>,
    /// Attributes whose clauses are being taken apart: to meet one of them again is a circle.
    path: &'e [(Owner, Name)],
    visited: usize,
    pub(super) needs: Needs,
}

impl<'e> Analysis<'e> {
    pub(super) fn new(columns: &'e mut Columns, job: &'e ClassAd) -> Analysis<'e> {
        Analysis { columns, job, seen: HashSet::new(), path: &[], visited: 0, needs: Needs::default() }
    }

    /// The same, within the clauses of these attributes.
    pub(super) fn within(mut self, path: &'e [(Owner, Name)]) -> Analysis<'e> {
        self.path = path;
        self
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
            self.visited += 1;
            if self.visited > MOST_NODES {
                (self.needs.opaque, self.needs.unseen) = (true, true);
                return;
            }
            note_steps(1);
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
                        _ => self.select(base, owner, &mut todo),
                    },
                    _ => self.select(base, owner, &mut todo),
                },
                // A whole ad as a value: what becomes of it nobody knows.
                Node::Ref(_) => (self.needs.opaque, self.needs.unseen) = (true, true),
                Node::RootRef(name) => {
                    self.needs.opaque = true;
                    self.mention(name, owner, &mut todo);
                    self.mention(name, owner.other(), &mut todo);
                }
                // Within a nested ad the sides are not told apart: names count for both.
                Node::Ad(ad) => {
                    self.needs.opaque = true;
                    todo.extend(ad.iter().map(|(_, expr)| (expr.clone(), owner)));
                    todo.extend(ad.iter().map(|(_, expr)| (expr.clone(), owner.other())));
                }
                Node::Unary(_, a) | Node::Paren(a) => todo.push((a.clone(), owner)),
                Node::Binary(_, a, b) | Node::Elvis(a, b) | Node::Subscript(a, b) => {
                    todo.extend([(a.clone(), owner), (b.clone(), owner)]);
                }
                Node::Ternary(a, b, c) => {
                    todo.extend([(a.clone(), owner), (b.clone(), owner), (c.clone(), owner)]);
                }
                Node::Call(Call { func, args, .. }) => {
                    self.needs.opaque |= func.is_some_and(|f| !f.is_pure());
                    self.needs.unseen |= func.is_some_and(Func::looks_at_more_than_its_arguments);
                    todo.extend(args.iter().map(|arg| (arg.clone(), owner)));
                }
                Node::List(items) => todo.extend(items.iter().map(|item| (item.clone(), owner))),
            }
        }
    }

    /// An attribute of whatever an expression gives: a nested ad, which is found where it is written.
    fn select(&mut self, base: &Expr, owner: Owner, todo: &mut Vec<(Expr, Owner)>) {
        self.needs.opaque = true;
        todo.push((base.clone(), owner));
    }

    fn mention(&mut self, name: &Name, owner: Owner, todo: &mut Vec<(Expr, Owner)>) {
        // A Requirements inside a Requirements is a circle, which clauses taken one by one would not notice.
        if *name == *REQUIREMENTS || self.path.iter().any(|(o, n)| *o == owner && n == name) {
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
                let too_many = todo.len() - before == MOST_EXPRESSIONS;
                self.needs.opaque |= too_many;
                self.needs.unseen |= too_many;
            }
        }
    }
}
