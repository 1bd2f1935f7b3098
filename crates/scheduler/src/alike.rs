//! Which procs of a cluster are alike, by what their attributes are put together from and not by putting them together: a
//! submit of a few bytes may stand for ten million procs, and its sorting must not cost more than its size.

use std::collections::HashMap;

use model::template::{PieceKind, Varying};
use model::{JobTemplate, ProcSet};

use crate::shape::PARTS_PER_CLUSTER;

/// Procs that may alternate within rows: each is a span of its own. A table has its rows to show for it, so many for each.
const ALTERNATING: u32 = 100_000;
const ALTERNATING_PER_ENTRY: u32 = 16;

/// What the attributes in question are made of.
#[derive(Default)]
struct Uses {
    proc: bool,
    step: bool,
    row: bool,
    columns: Vec<usize>,
}

impl Uses {
    fn of(attributes: &[&Varying]) -> Self {
        let mut uses = Self::default();
        for piece in attributes.iter().flat_map(|v| &v.pieces) {
            match piece.kind {
                Some(PieceKind::Proc(_)) => uses.proc = true,
                Some(PieceKind::Step(_)) => uses.step = true,
                Some(PieceKind::Row(_)) => uses.row = true,
                Some(PieceKind::Column(index)) => uses.columns.push(index as usize),
                Some(PieceKind::Text(_) | PieceKind::Cluster(_)) | None => {}
            }
        }
        uses.columns.sort_unstable();
        uses.columns.dedup();
        uses
    }
}

/// The procs of a cluster by groups in which these attributes are the same, the one with the lowest proc first. `None` when
/// there are too many. Procs of two groups may be alike all the same, where the same text is put together differently.
pub(crate) fn groups(template: &JobTemplate, attributes: &[&Varying]) -> Option<Vec<ProcSet>> {
    let uses = Uses::of(attributes);
    let (procs, per_row) = (template.procs, template.per_row.clamp(1, template.procs.max(1)));
    let rows = procs.div_ceil(per_row);
    let most = PARTS_PER_CLUSTER as u32;
    if uses.proc {
        return (procs <= most).then(|| (0..procs).map(|proc| range(proc, proc + 1)).collect());
    }
    if (uses.row && rows > most) || (uses.step && per_row > most) {
        return None;
    }
    let rows_differ = uses.row || !uses.columns.is_empty();
    if !rows_differ && !uses.step {
        return Some(vec![ProcSet::all(procs)]);
    }
    let shown = if template.columns.is_empty() { 0 } else { rows.saturating_mul(ALTERNATING_PER_ENTRY) };
    if uses.step && rows > 1 && procs > ALTERNATING.max(shown) {
        return None;
    }
    let mut alike: HashMap<(Vec<&str>, u32), u32> = HashMap::new();
    let mut found: HashMap<(u32, u32), ProcSet> = HashMap::new();
    // Without steps a row is one span, and without anything that differs between rows all of them are one row.
    let (length, steps) = if uses.step { (1, per_row) } else { (per_row, 1) };
    for row in 0..rows {
        let entry = |column: &usize| template.columns.get(*column).map_or("", |c| c.get(row as usize));
        let entries: Vec<&str> = uses.columns.iter().map(entry).collect();
        // The entries are compared once for each row, not for each of its procs: they may be long.
        let number = if uses.row { row } else { 0 };
        let next = alike.len() as u32;
        let same = *alike.entry((entries, number)).or_insert(next);
        for step in 0..steps {
            let first = row * per_row + step;
            if first >= procs {
                break;
            }
            let group = found.entry((same, step)).or_default();
            group.insert_range(first, first.saturating_add(length).min(procs));
        }
        if found.len() > PARTS_PER_CLUSTER {
            return None;
        }
    }
    let mut groups: Vec<ProcSet> = found.into_values().collect();
    groups.sort_by_key(ProcSet::first);
    Some(groups)
}

fn range(start: u32, end: u32) -> ProcSet {
    let mut set = ProcSet::default();
    set.insert_range(start, end);
    set
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece() -> impl Strategy<Value = PieceKind> {
        prop_oneof![
            Just(PieceKind::Text("x".into())),
            Just(PieceKind::Cluster(true)),
            Just(PieceKind::Proc(true)),
            Just(PieceKind::Step(true)),
            Just(PieceKind::Row(true)),
            (0..2u32).prop_map(PieceKind::Column),
        ]
    }

    proptest! {
        #[test]
        fn procs_of_a_group_are_alike_and_all_are_in_one(
            procs in 1..40u32,
            per_row in 1..50u32,
            pieces in proptest::collection::vec(piece(), 0..4),
            entries in proptest::collection::vec(0..3u8, 80),
        ) {
            let mut template = JobTemplate { procs, per_row, ..JobTemplate::default() };
            let rows = procs.div_ceil(per_row) as usize;
            for column in entries.chunks(40) {
                template.columns.push(column[..rows].iter().map(u8::to_string).collect());
            }
            template.set_varying("A", pieces);
            template.check().unwrap();
            let attribute = &template.varying[0];
            let groups = groups(&template, &[attribute]).unwrap();
            let mut all = ProcSet::default();
            let mut texts = std::collections::HashMap::new();
            for (n, group) in groups.iter().enumerate() {
                prop_assert_eq!(all.intersection(group).len(), 0);
                all.insert_all(group);
                for proc in group.iter() {
                    let text = template.expand(attribute, 1, proc);
                    // One piece cannot be put together differently: there groups are exactly what is alike.
                    let known = texts.entry(text.clone()).or_insert(n);
                    prop_assert!(*known == n || attribute.pieces.len() > 1, "{} is in two groups", text);
                    prop_assert_eq!(&text, &template.expand(attribute, 1, group.first().unwrap()));
                }
            }
            prop_assert_eq!(all, ProcSet::all(procs));
        }
    }

    #[test]
    fn sorting_ten_million_procs_costs_what_the_template_costs() {
        let most = 10_000_000;
        let sort = |per_row: u32, pieces: Vec<PieceKind>| {
            let mut template = JobTemplate { procs: most, per_row, ..JobTemplate::default() };
            template.set_varying("RequestMemory", pieces);
            groups(&template, &[&template.varying[0]]).map(|groups| groups.len())
        };
        let long = PieceKind::Text("x".repeat(200_000));
        assert_eq!(sort(most, vec![]), Some(1));
        assert_eq!(sort(1, vec![long.clone()]), Some(1));
        assert_eq!(sort(1, vec![long.clone(), PieceKind::Proc(true)]), None);
        assert_eq!(sort(1, vec![PieceKind::Row(true)]), None);
        assert_eq!(sort(most / 100, vec![PieceKind::Row(true), long.clone()]), Some(100));
        assert_eq!(sort(most, vec![PieceKind::Step(true)]), None);
        assert_eq!(sort(2, vec![PieceKind::Step(true)]), None, "five million spans in two groups");
        assert_eq!(sort(1, vec![PieceKind::Step(true)]), None);
    }

    #[test]
    fn a_short_table_does_not_stand_for_millions_of_spans() {
        let sort = |rows: u32, per_row: u32| {
            let mut template = JobTemplate { procs: rows * per_row, per_row, ..JobTemplate::default() };
            template.columns.push((0..rows).map(|_| "x").collect());
            template.set_varying("A", vec![PieceKind::Column(0), PieceKind::Step(true)]);
            groups(&template, &[&template.varying[0]]).map(|groups| groups.len())
        };
        assert_eq!(sort(1_000, 9_000), None);
        assert_eq!(sort(100_000, 2), Some(2));
    }
}
