//! A source file with all its mutants in it, each behind the switch.
//!
//! Only one mutant is ever on, so what stands in a mutant's own branch is the original text with one change, and the size of the
//! result does not explode where changed expressions stand inside each other.

use std::collections::BTreeSet;
use std::ops::Range;

use super::find::{Kind, Place};

/// Names a mutant in the switch; zero is none.
pub(crate) type Id = u32;

/// Places of a file with the numbers of their changes: the first change of each has the number given, the others follow.
pub(crate) struct Numbered<'p> {
    pub(crate) first: Id,
    pub(crate) place: &'p Place,
}

#[derive(Default)]
pub(crate) struct Woven {
    pub(crate) text: String,
    /// Where in `text` each mutant stands: its own branch, and all that was put around the original.
    pub(crate) spots: Vec<Spot>,
}

pub(crate) struct Spot {
    pub(crate) id: Id,
    pub(crate) own: Range<usize>,
    pub(crate) around: Range<usize>,
}

/// Puts all mutants into a file, except those that are left out.
pub(crate) fn weave(source: &str, places: &[Numbered], without: &BTreeSet<Id>) -> Woven {
    let mut order: Vec<&Numbered> = places.iter().collect();
    // Outer before inner; the sort is stable, and of equal ones the outer was found first.
    order.sort_by_key(|n| {
        let bytes = &n.place.bytes;
        (bytes.start, !bytes.is_empty(), std::cmp::Reverse(bytes.end))
    });
    let mut weaver = Weaver { source, order, next: 0, without, woven: Woven::default() };
    weaver.copy(0..source.len());
    weaver.woven
}

struct Weaver<'a> {
    source: &'a str,
    order: Vec<&'a Numbered<'a>>,
    next: usize,
    without: &'a BTreeSet<Id>,
    woven: Woven,
}

impl Weaver<'_> {
    /// The bytes of the source with the mutants that stand in them.
    fn copy(&mut self, bytes: Range<usize>) {
        let mut at = bytes.start;
        while let Some(numbered) = self.order.get(self.next).copied() {
            let place = &numbered.place.bytes;
            if place.start < at || place.end > bytes.end {
                break;
            }
            self.next += 1;
            self.push(&self.source[at..place.start]);
            self.put(numbered);
            at = place.end;
        }
        self.push(&self.source[at..bytes.end]);
    }

    fn push(&mut self, text: &str) {
        self.woven.text.push_str(text);
    }

    fn put(&mut self, numbered: &Numbered) {
        let from = self.woven.text.len();
        let mut ids = Vec::new();
        let mut replaced = false;
        for (id, change) in (numbered.first..).zip(&numbered.place.changes) {
            if self.without.contains(&id) {
                continue;
            }
            let start = self.woven.text.len();
            match &change.kind {
                Kind::AtStart(statement) => {
                    self.push(&format!(" if crate::mutation_switch::is_on({id}) {{ {statement} }}"))
                }
                Kind::NeverTaken => self.push(&format!(" if !crate::mutation_switch::is_on({id})")),
                Kind::Instead(other) => {
                    let open = if replaced { " else if" } else { "(if" };
                    replaced = true;
                    self.push(&format!("{open} crate::mutation_switch::is_on({id}) {{ {other} }}"));
                }
            }
            ids.push((id, start..self.woven.text.len()));
        }
        if replaced {
            self.push(" else { (");
        }
        self.copy(numbered.place.bytes.clone());
        if replaced {
            self.push(") })");
        }
        let around = from..self.woven.text.len();
        self.woven.spots.extend(ids.into_iter().map(|(id, own)| Spot { id, own, around: around.clone() }));
    }
}

/// Mutants that an error at these bytes is about: the innermost around it, or else all inside it.
pub(crate) fn blame(spots: &[Spot], error: &Range<usize>) -> Vec<Id> {
    let holds = |range: &Range<usize>| range.start <= error.start && error.end <= range.end;
    if let Some(spot) = spots.iter().filter(|spot| holds(&spot.own)).min_by_key(|spot| spot.own.len()) {
        return vec![spot.id];
    }
    let inside: Vec<Id> = spots
        .iter()
        .filter(|spot| error.start <= spot.around.start && spot.around.end <= error.end)
        .map(|spot| spot.id)
        .collect();
    if !inside.is_empty() {
        return inside;
    }
    let around = spots.iter().filter(|spot| holds(&spot.around)).map(|spot| spot.around.len()).min();
    spots
        .iter()
        .filter(|spot| holds(&spot.around) && Some(spot.around.len()) == around)
        .map(|spot| spot.id)
        .collect()
}

/// The module that every mutated crate gets at the end of its root: which mutant is on, and which were reached.
pub(crate) fn switch(highest: Id) -> String {
    SWITCH.replace("HIGHEST", &highest.to_string())
}

pub(crate) const MUTANT: &str = "UPDRAFT_MUTANT";
pub(crate) const REACHED: &str = "UPDRAFT_MUTANTS_REACHED";

const SWITCH: &str = r#"
#[doc(hidden)]
#[allow(missing_docs, clippy::all, clippy::pedantic, clippy::disallowed_methods)]
pub mod mutation_switch {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
    const UNREAD: u32 = u32::MAX;
    const RECORDING: u32 = u32::MAX - 1;
    static ON: AtomicU32 = AtomicU32::new(UNREAD);
    static SEEN: [AtomicBool; HIGHEST + 1] = [const { AtomicBool::new(false) }; HIGHEST + 1];
    #[inline]
    pub fn is_on(id: u32) -> bool {
        let on = ON.load(Relaxed);
        if on >= RECORDING { return look(id); }
        on == id
    }
    #[cold]
    #[inline(never)]
    fn look(id: u32) -> bool {
        if ON.load(Relaxed) == UNREAD {
            let number = std::env::var("UPDRAFT_MUTANT").ok().and_then(|n| n.parse().ok());
            let records = std::env::var_os("UPDRAFT_MUTANTS_REACHED").is_some();
            ON.store(number.unwrap_or(if records { RECORDING } else { 0 }), Relaxed);
            return is_on(id);
        }
        if !SEEN[id as usize].swap(true, Relaxed) { record(id); }
        false
    }
    fn record(id: u32) {
        use std::io::Write;
        let Some(path) = std::env::var_os("UPDRAFT_MUTANTS_REACHED") else { return };
        if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(path) {
            let _ = file.write_all(&id.to_le_bytes());
        }
    }
}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::find::find_places;

    fn woven(source: &str, without: &[Id]) -> (Woven, Vec<String>) {
        let found = find_places(source).unwrap();
        let mut first = 1;
        let mut words = Vec::new();
        let numbered: Vec<Numbered> = found
            .places
            .iter()
            .map(|place| {
                let numbered = Numbered { first, place };
                first += place.changes.len() as Id;
                words.extend(place.changes.iter().map(|change| change.words.clone()));
                numbered
            })
            .collect();
        (weave(source, &numbered, &without.iter().copied().collect()), words)
    }

    #[test]
    fn every_kind_of_place_is_found_and_the_result_is_still_rust() {
        let source = r"
            fn fits(free: u64, wanted: u64) -> bool {
                if free.is_power_of_two() { return !matches!(free, 1 | 2); }
                match free { 0 if wanted == 0 => true, 7 => false, _ => free >= wanted && wanted > 0 }
            }
        ";
        let (woven, words) = woven(source, &[]);
        syn::parse_file(&woven.text).unwrap();
        for expected in [
            "fits returns true at once",
            "fits returns false at once",
            "free.is_power_of_two() to its opposite",
            "! taken off matches!(free, 1 | 2)",
            "matches!(free, 1 | 2) to its opposite",
            "the guard wanted == 0 to true",
            "the guard wanted == 0 to false",
            "== to != in wanted == 0",
            "true to false",
            "the arm 7 is never taken",
            "false to true",
            "&& to || in free >= wanted && wanted > 0",
            ">= to > in free >= wanted",
            ">= to < in free >= wanted",
            "> to >= in wanted > 0",
            "> to < in wanted > 0",
        ] {
            assert!(words.iter().any(|w| w == expected), "{expected} is not among {words:#?}");
        }
        assert_eq!(words.len(), 16, "{words:#?}");
        assert_eq!(woven.spots.len(), words.len());
    }

    #[test]
    fn what_is_compiled_in_or_for_tests_or_for_printing_is_left_alone() {
        let source = r"
            const TWO: u64 = 1 + 1;
            static THREE: u64 = 1 + 2;
            const fn four() -> u64 { 2 + 2 }
            #[cfg(test)] fn helper() -> bool { true }
            #[cfg(test)] mod tests { fn five() -> u64 { 2 + 3 } }
            #[test] fn holds() { assert!(1 < 2); }
            impl std::fmt::Display for X { fn fmt(&self, f: &mut F) -> R { f.write(1 + 1) } }
            struct Y([u8; 3 + 4]);
            enum E { A = 1 + 5 }
        ";
        let (woven, words) = woven(source, &[]);
        assert_eq!(words, Vec::<String>::new());
        assert_eq!(woven.text, source);
    }

    #[test]
    fn a_chain_with_let_keeps_its_operators() {
        let (woven, words) = woven("fn f(a: Option<u8>) { if let Some(n) = a && n > 3 { g(n) } }", &[]);
        syn::parse_file(&woven.text).unwrap();
        assert_eq!(words, ["f returns () at once", "> to >= in n > 3", "> to < in n > 3"]);
    }

    #[test]
    fn what_was_left_out_leaves_no_trace_and_the_others_stay() {
        let source = "fn f(a: u8, b: u8) -> u8 { a + b }";
        // Two returns, then the two other operators.
        let (all, _) = woven(source, &[]);
        assert_eq!(all.spots.iter().map(|spot| spot.id).collect::<BTreeSet<_>>(), (1..=4).collect());
        let (one, _) = woven(source, &[1, 2, 4]);
        assert_eq!(
            one.text,
            "fn f(a: u8, b: u8) -> u8 { (if crate::mutation_switch::is_on(3) { (a) - (b) } else { (a + b) }) }"
        );
        let (none, _) = woven(source, &[1, 2, 3, 4]);
        assert_eq!(none.text, source);
    }

    #[test]
    fn operands_keep_together_when_their_operator_is_changed() {
        let (woven, _) = woven("fn f(a: u8) -> S { S(a + g(a) * a) }", &[]);
        assert!(woven.text.contains("(a) * (g(a) * a)"), "{}", woven.text);
    }

    #[test]
    fn an_error_is_blamed_on_the_innermost_mutant_around_it_or_on_all_inside_it() {
        let (woven, _) = woven("fn f(a: u8) { g(a + h(a - 1)) }", &[1]);
        let at = |part: &str| {
            let start = woven.text.find(part).unwrap();
            start..start + part.len()
        };
        // The additions are 2 and 3, the subtractions inside them 4 and 5.
        assert_eq!(blame(&woven.spots, &at("(a) - (h(a - 1))")), [2]);
        assert_eq!(blame(&woven.spots, &at("(a) / (1)")), [5]);
        let call = at("g(").start..woven.text.len() - 2;
        let inside: BTreeSet<Id> = blame(&woven.spots, &call).into_iter().collect();
        assert_eq!(inside, (2..=5).collect());
        // The original itself does not fit what is around it: both changes of the addition.
        assert_eq!(blame(&woven.spots, &at("else { (a + h")), [2, 3]);
    }
}
