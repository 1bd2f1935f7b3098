//! What the kinds of jobs of a cluster cost, in bytes: counted from what their attributes are put together from, before anything
//! is put together. A pattern of two kilobytes with the proc's number in it is another expression for each of 10,000 procs.

use std::collections::BTreeSet;

use model::changing::words_of;
use model::template::{PieceKind, Varying, is_secret};
use model::{JobTemplate, ProcSet};

/// Bytes of kinds of jobs in one cluster, of one owner's jobs in the queue, and of all jobs.
pub(crate) const CLUSTER_BYTES: u64 = 4 << 20;
pub(crate) const OWNER_BYTES: u64 = 8 << 20;
pub(crate) const POOL_BYTES: u64 = 32 << 20;

/// Whoever has no more than this in the queue is let in also when others have filled the pool: four users could keep a fifth from
/// submitting anything.
pub(crate) const MODEST_BYTES: u64 = 256 << 10;
/// The same for the number of kinds.
pub(crate) const MODEST_KINDS: usize = 16;

/// Bytes of plain values (numbers, texts) of one kind that are not counted: every job has some, and the number of kinds is
/// limited too.
const PLAIN_BYTES: u64 = 2 << 10;

/// What a kind costs beside its bytes whose matching asks for the clock or for chance: the answer is never kept, so that every
/// pass asks again.
pub(crate) const UNKEPT_BYTES: u64 = 128 << 10;
/// Words by which an expression does so; `eval` may do it unseen.
const UNKEPT: [&str; 5] = ["time", "currenttime", "formattime", "random", "eval"];

/// Does matching these jobs ask for the clock or for chance, directly or by way of their own attributes?
fn is_never_kept(template: &JobTemplate) -> bool {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let all = template.shared.iter().map(|a| &a.name).chain(template.varying.iter().map(|v| &v.name));
    let is_asked = |name: &String| name == "requirements" || name == "rank" || name.starts_with("request");
    let mut todo: Vec<String> = all.map(|name| name.to_ascii_lowercase()).filter(is_asked).collect();
    while let Some(name) = todo.pop() {
        if UNKEPT.contains(&name.as_str()) {
            return true;
        }
        if !seen.insert(name.clone()) {
            continue;
        }
        if let Some(text) = template.shared(&name) {
            todo.extend(words_of(text).into_iter().map(|word| word.to_ascii_lowercase()));
        }
        let varying = template.varying.iter().find(|v| v.name.eq_ignore_ascii_case(&name));
        for piece in varying.into_iter().flat_map(|v| &v.pieces) {
            let text = match &piece.kind {
                Some(PieceKind::Text(text)) => text.as_str(),
                Some(PieceKind::Column(index)) => {
                    template.columns.get(*index as usize).map_or("", |c| &c.text)
                }
                _ => "",
            };
            // Words may be put together from pieces, or run into each other in a column.
            let text = text.to_ascii_lowercase();
            if UNKEPT.iter().any(|word| text.contains(&format!("{word}(")) || text.contains("currenttime")) {
                return true;
            }
            todo.extend(words_of(&text));
        }
    }
    false
}

/// How many bytes some attributes of a job have: so many for each job, and so many times the digits of its numbers and the
/// entries of its row.
#[derive(Debug, Default)]
struct Length {
    text: u64,
    procs: u64,
    steps: u64,
    rows: u64,
    /// Columns, and how often each is there.
    columns: Vec<(usize, u64)>,
}

impl Length {
    fn add(&mut self, varying: &Varying) {
        self.text += varying.name.len() as u64;
        for piece in &varying.pieces {
            match &piece.kind {
                Some(PieceKind::Text(text)) => self.text += text.len() as u64,
                // The cluster's number is not known yet; it has ten digits at most.
                Some(PieceKind::Cluster(_)) => self.text += 10,
                Some(PieceKind::Proc(_)) => self.procs += 1,
                Some(PieceKind::Step(_)) => self.steps += 1,
                Some(PieceKind::Row(_)) => self.rows += 1,
                Some(PieceKind::Column(index)) => self.columns.push((*index as usize, 1)),
                None => {}
            }
        }
    }

    /// Each column once.
    fn sum_columns(&mut self) {
        self.columns.sort_unstable();
        self.columns.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
    }

    fn of_row(&self, template: &JobTemplate, row: u32) -> u64 {
        let entry =
            |column: usize| template.columns.get(column).map_or(0, |c| c.get(row as usize).len() as u64);
        let columns: u64 = self.columns.iter().map(|(column, times)| times * entry(*column)).sum();
        self.text + self.rows * digits(row) + columns
    }

    fn of_proc(&self, of_row: u64, proc: u32, step: u32) -> u64 {
        of_row + self.procs * digits(proc) + self.steps * digits(step)
    }
}

/// What one kind of a cluster's jobs costs.
#[derive(Debug)]
pub(crate) struct Price<'a> {
    template: &'a JobTemplate,
    /// Expressions, and everything that sets the jobs apart.
    counted: Length,
    /// Plain values, and what differs without setting them apart.
    plain: Length,
    /// For each kind.
    unkept: u64,
}

impl<'a> Price<'a> {
    /// `sets_apart` are those of the varying attributes by which jobs are matched.
    pub(crate) fn new(template: &'a JobTemplate, sets_apart: &[bool]) -> Self {
        let (mut counted, mut plain) = (Length::default(), Length::default());
        for attribute in template.shared.iter().filter(|a| !is_secret(&a.name)) {
            let length = if is_plain(&attribute.expr) { &mut plain } else { &mut counted };
            length.text += (attribute.name.len() + attribute.expr.len()) as u64;
        }
        for (varying, apart) in template.varying.iter().zip(sets_apart) {
            if *apart || !(is_secret(&varying.name) || is_plain_pattern(template, varying)) {
                counted.add(varying);
            } else if !is_secret(&varying.name) {
                plain.add(varying);
            }
        }
        counted.sum_columns();
        plain.sum_columns();
        let unkept = if is_never_kept(template) { UNKEPT_BYTES } else { 0 };
        Self { template, counted, plain, unkept }
    }

    /// Bytes of one kind, by a proc of it.
    pub(crate) fn of_proc(&self, proc: u32) -> u64 {
        self.of_procs(std::iter::once(proc))
    }

    /// Bytes of the kinds of these groups of procs. Those of one row that follow each other look its entries up once.
    pub(crate) fn of_groups(&self, groups: &[ProcSet]) -> u64 {
        self.of_procs(groups.iter().map(|group| group.first().unwrap_or(0)))
    }

    fn of_procs(&self, procs: impl Iterator<Item = u32>) -> u64 {
        let per_row = self.template.per_row.max(1);
        let mut known = None;
        let mut sum = 0_u64;
        for proc in procs {
            let (row, step) = (proc / per_row, proc % per_row);
            let (counted, plain) = match known {
                Some((of, lengths)) if of == row => lengths,
                _ => {
                    let of_row = |length: &Length| length.of_row(self.template, row);
                    (of_row(&self.counted), of_row(&self.plain))
                }
            };
            known = Some((row, (counted, plain)));
            let plain = self.plain.of_proc(plain, proc, step).saturating_sub(PLAIN_BYTES);
            let counted = self.counted.of_proc(counted, proc, step).saturating_add(self.unkept);
            sum = sum.saturating_add(counted).saturating_add(plain);
        }
        sum
    }
}

fn digits(number: u32) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

/// Is this a number, a truth or one text, and no expression? A text with quotes within is taken for an expression.
fn is_plain(expr: &str) -> bool {
    let expr = expr.trim();
    let text = expr.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    if let Some(text) = text {
        return !text.contains('"');
    }
    let is_word = ["true", "false", "undefined"].iter().any(|word| expr.eq_ignore_ascii_case(word));
    is_word || expr.parse::<f64>().is_ok()
}

/// Does a pattern give a number, or one text, for each job?
fn is_plain_pattern(template: &JobTemplate, varying: &Varying) -> bool {
    let (mut quotes, mut is_number, mut is_text) = (0, true, true);
    for piece in &varying.pieces {
        match &piece.kind {
            Some(PieceKind::Text(text)) => {
                is_number = false;
                quotes += text.bytes().filter(|b| *b == b'"').count();
            }
            Some(PieceKind::Column(index)) => {
                is_number = false;
                is_text &= template.columns.get(*index as usize).is_none_or(|c| !c.text.contains('"'));
            }
            _ => {}
        }
    }
    let text_of = |piece: Option<&'_ model::template::Piece>| match piece.and_then(|p| p.kind.as_ref()) {
        Some(PieceKind::Text(text)) => text.clone(),
        _ => String::new(),
    };
    let is_quoted =
        text_of(varying.pieces.first()).starts_with('"') && text_of(varying.pieces.last()).ends_with('"');
    is_number || (is_text && is_quoted && quotes == 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece() -> impl Strategy<Value = PieceKind> {
        prop_oneof![
            "[a-z]{0,5}".prop_map(PieceKind::Text),
            Just(PieceKind::Proc(true)),
            Just(PieceKind::Step(true)),
            Just(PieceKind::Row(true)),
            (0..2u32).prop_map(PieceKind::Column),
        ]
    }

    proptest! {
        #[test]
        fn what_is_counted_is_what_would_be_put_together(
            procs in 1..300u32,
            per_row in 1..120u32,
            pieces in proptest::collection::vec(piece(), 0..6),
            entries in proptest::collection::vec("[a-z]{0,4}", 600),
        ) {
            let mut template = JobTemplate { procs, per_row, ..JobTemplate::default() };
            let rows = procs.div_ceil(per_row) as usize;
            for column in entries.chunks(300) {
                template.columns.push(column[..rows].iter().collect());
            }
            template.set("Shared", "a + b");
            template.set("Plain", "\"not counted\"");
            template.set_varying("A", pieces);
            template.check().unwrap();
            let groups = crate::alike::groups(&template, &[&template.varying[0]]).unwrap();
            let expanded = |group: &ProcSet| template.expand(&template.varying[0], 1, group.first().unwrap()).len();
            let expected: usize = groups.iter().map(|group| "Shareda + b".len() + 1 + expanded(group)).sum();
            prop_assert_eq!(Price::new(&template, &[true]).of_groups(&groups), expected as u64);
        }
    }

    #[test]
    fn a_pattern_that_sets_nobody_apart_is_free_only_as_a_plain_value() {
        let text = |text: &str| PieceKind::Text(text.into());
        let mut template = JobTemplate::of(2);
        template.columns.push(["a b"].into_iter().collect());
        template.columns.push(["\" + x + \""].into_iter().collect());
        let patterns = [
            (vec![PieceKind::Proc(true)], true),
            (vec![text("\"a "), PieceKind::Column(0), text("\"")], true),
            (vec![text("\"a "), PieceKind::Column(1), text("\"")], false),
            (vec![text("\"a\" + x + \"b\"")], false),
            (vec![text("TARGET.Memory + 1")], false),
            (vec![PieceKind::Column(0)], false),
            (vec![text("\"")], false),
        ];
        for (pieces, free) in patterns {
            template.set_varying("Args", pieces.clone());
            assert_eq!(Price::new(&template, &[false]).of_proc(0) == 0, free, "{pieces:?}");
        }
    }

    #[test]
    fn plain_values_are_counted_when_they_are_long() {
        let mut template = JobTemplate::of(1);
        template.set("Args", format!("\"{}\"", "x".repeat(100_000)));
        template.set("Environment", format!("\"{}\"", "x".repeat(100_000)));
        assert_eq!(Price::new(&template, &[]).of_proc(0), 100_006 - PLAIN_BYTES);
        for (expr, plain) in [
            ("-1.5", true),
            ("1-1", false),
            ("TRUE", true),
            ("\"a\"", true),
            ("\"a\" == \"b\"", false),
            ("x", false),
        ] {
            assert_eq!(is_plain(expr), plain, "{expr}");
        }
    }
}
