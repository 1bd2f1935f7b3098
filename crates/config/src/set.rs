//! The definitions of a text: last one wins, names without regard to case, each with its source line.

use std::collections::{BTreeMap, BTreeSet};

use crate::lines::Span;

/// One definition.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Name as it was spelt.
    pub name: String,
    /// Value before expansion; references to the name itself are already replaced.
    pub raw: String,
    /// Where the value stands.
    pub span: Span,
}

/// All definitions.
#[derive(Debug, Clone, Default)]
pub struct MacroSet {
    by_name: BTreeMap<String, Definition>,
    /// Names that no later definition changes, in lower case.
    pinned: BTreeSet<String>,
}

impl MacroSet {
    /// The definition of a name.
    pub fn get(&self, name: &str) -> Option<&Definition> {
        if name.bytes().any(|b| b.is_ascii_uppercase()) {
            self.by_name.get(&name.to_ascii_lowercase())
        } else {
            self.by_name.get(name)
        }
    }

    /// Defines a name. `$(NAME)` inside its own value stands for the earlier value (or for `inherited`, the built-in
    /// default, when there is none), so that lists can grow line by line.
    pub fn define(&mut self, name: &str, raw: &str, span: Span, inherited: Option<&str>) {
        let key = name.to_ascii_lowercase();
        if self.pinned.contains(&key) {
            return;
        }
        let earlier = self.by_name.get(&key).map(|d| d.raw.as_str()).or(inherited);
        let mut raw = replace_self(name, raw, earlier);
        // `STARTD.X = $(X) more` adds to the plain X; looked up later, $(X) would find STARTD.X itself.
        if let Some((_, bare)) = name.split_once('.') {
            let plain = self.get(bare).map(|d| d.raw.as_str());
            raw = replace_self(bare, &raw, plain);
        }
        self.by_name.insert(key, Definition { name: name.to_owned(), raw, span });
    }

    /// Defines a name for good: what a text says about it later is passed over.
    pub fn pin(&mut self, name: &str, raw: &str, span: Span) {
        let key = name.to_ascii_lowercase();
        self.pinned.remove(&key);
        self.define(name, raw, span, None);
        self.pinned.insert(key);
    }

    /// True for a name that was defined for good.
    pub fn is_pinned(&self, name: &str) -> bool {
        !self.pinned.is_empty() && self.pinned.contains(&name.to_ascii_lowercase())
    }

    /// Removes a definition.
    pub fn remove(&mut self, name: &str) -> Option<Definition> {
        self.by_name.remove(&name.to_ascii_lowercase())
    }

    /// All definitions in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.by_name.values()
    }

    /// Number of definitions.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// True when nothing is defined.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// Replaces `$(NAME)` and `$(NAME:default)` in NAME's own value; everything else stays lazy.
fn replace_self(name: &str, raw: &str, earlier: Option<&str>) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    for _ in 0..crate::expand::STEPS {
        let Some(start) = rest.find("$(") else { break };
        let doubled = rest[..start].ends_with('$');
        let body = &rest[start + 2..];
        let Some(end) = crate::expand::closing(body) else { break };
        let inside = &body[..end];
        let (reference, default) = match inside.split_once(':') {
            Some((reference, default)) => (reference, Some(default)),
            None => (inside, None),
        };
        if doubled || !reference.eq_ignore_ascii_case(name) {
            // Step over the opening only: a default may hold the self reference.
            out.push_str(&rest[..start + 2]);
            rest = body;
            continue;
        }
        out.push_str(&rest[..start]);
        match earlier {
            Some(value) if !value.is_empty() => out.push_str(value),
            _ => out.push_str(default.unwrap_or("")),
        }
        rest = &body[end + 1..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_self_part_is_replaced() {
        assert_eq!(
            replace_self("A", "$(a), $(B) $$(A) $(C:$(A))", Some("x$(B)")),
            "x$(B), $(B) $$(A) $(C:x$(B))"
        );
        assert_eq!(replace_self("A", "$(A:d(1)) $(A", None), "d(1) $(A");
    }

    #[test]
    fn a_pinned_name_keeps_its_value() {
        let source = crate::lines::Source::new("x", "1");
        let span = || Span::at(&source, 1, 0);
        let mut set = MacroSet::default();
        set.define("A", "file", span(), None);
        set.pin("a", "pinned", span());
        set.define("A", "later", span(), None);
        set.define("B", "later", span(), None);
        assert_eq!(
            (set.get("A").unwrap().raw.as_str(), set.get("b").unwrap().raw.as_str()),
            ("pinned", "later")
        );
        assert!(set.is_pinned("A") && !set.is_pinned("B"));
    }
}
