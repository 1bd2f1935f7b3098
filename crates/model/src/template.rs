//! What a cluster's jobs share, and where they differ.
//!
//! A cluster of a million procs is one [`JobTemplate`]: shared attributes once, differing attributes as patterns
//! over the cluster id, the proc number and columns of a table with one row per item. Attribute values are ClassAd
//! expression *text*; whoever builds a template (the `submit` crate) has checked and quoted every piece, so that
//! concatenating the pieces of a pattern always gives one valid expression. Nothing here parses ClassAds.

use crate::attributes::GANG;
use prost::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;

/// The jobs of one cluster in O(1) space plus one short row per item.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize, JsonSchema)]
pub struct JobTemplate {
    /// How many procs the cluster has: `max(rows, 1) * per_row`.
    #[prost(uint32, tag = "1")]
    pub procs: u32,
    /// Procs per table row (`queue N ... in (...)`); proc p belongs to row `p / per_row`, step `p % per_row`.
    #[prost(uint32, tag = "2")]
    pub per_row: u32,
    /// Attributes that are the same for every proc.
    #[prost(message, repeated, tag = "3")]
    pub shared: Vec<Attribute>,
    /// Attributes that differ between procs.
    #[prost(message, repeated, tag = "4")]
    pub varying: Vec<Varying>,
    /// The table of differences, by column; every column has one entry per row.
    #[prost(message, repeated, tag = "5")]
    pub columns: Vec<Column>,
}

/// One attribute: a name and the text of its expression.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize, JsonSchema)]
pub struct Attribute {
    /// Attribute name as the submitter spelt it; names compare without regard to case.
    #[prost(string, tag = "1")]
    pub name: String,
    /// ClassAd expression text, for instance `"a string"` (with its quotes), `42`, `TARGET.Memory >= 10`.
    #[prost(string, tag = "2")]
    pub expr: String,
}

/// An attribute whose expression text is put together for each proc.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize, JsonSchema)]
pub struct Varying {
    /// Attribute name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Pieces whose concatenation is the expression text.
    #[prost(message, repeated, tag = "2")]
    pub pieces: Vec<Piece>,
}

/// One piece of a varying attribute.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize, JsonSchema)]
pub struct Piece {
    /// What stands here.
    #[prost(oneof = "PieceKind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<PieceKind>,
}

/// The kinds of piece.
#[derive(Clone, PartialEq, Eq, Hash, prost::Oneof, Serialize, Deserialize, JsonSchema)]
pub enum PieceKind {
    /// Literal text.
    #[prost(string, tag = "1")]
    Text(String),
    /// The cluster id in decimal.
    #[prost(bool, tag = "2")]
    Cluster(bool),
    /// The proc number in decimal.
    #[prost(bool, tag = "3")]
    Proc(bool),
    /// `proc % per_row` in decimal.
    #[prost(bool, tag = "4")]
    Step(bool),
    /// `proc / per_row` in decimal.
    #[prost(bool, tag = "5")]
    Row(bool),
    /// The entry of this proc's row in the column with this index.
    #[prost(uint32, tag = "6")]
    Column(u32),
}

/// One column of the table: all entries in one string, so that a million short items cost their bytes plus four each.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// All entries, one after another.
    #[prost(string, tag = "1")]
    pub text: String,
    /// Where each entry ends in `text`, as byte offsets.
    #[prost(uint32, repeated, tag = "2")]
    pub ends: Vec<u32>,
}

impl Column {
    /// Appends one entry.
    pub fn push(&mut self, entry: &str) {
        self.text.push_str(entry);
        self.ends.push(self.text.len() as u32);
    }

    /// The entry of a row, or the empty string past the end.
    pub fn get(&self, row: usize) -> &str {
        let Some(&end) = self.ends.get(row) else { return "" };
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        self.text.get(start as usize..end as usize).unwrap_or("")
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when the column has no entry.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl<S: AsRef<str>> FromIterator<S> for Column {
    fn from_iter<I: IntoIterator<Item = S>>(entries: I) -> Self {
        let mut column = Self::default();
        for entry in entries {
            column.push(entry.as_ref());
        }
        column
    }
}

impl Column {
    /// Bytes of the longest entry.
    fn longest(&self) -> usize {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| end.saturating_sub(start) as usize).max().unwrap_or(0)
    }
}

/// Why a template that arrived from outside is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A count is out of range or does not agree with the table.
    #[error("job template: {0}")]
    Shape(String),
}

impl JobTemplate {
    /// True when its jobs start together or not at all. A gang of one is planned for like every gang.
    pub fn is_gang(&self) -> bool {
        self.shared(GANG).is_some_and(|text| text.trim().eq_ignore_ascii_case("true"))
    }

    /// A template of `procs` equal jobs with no attributes yet.
    pub fn of(procs: u32) -> Self {
        Self { procs, per_row: procs.max(1), ..Self::default() }
    }

    /// Adds or replaces a shared attribute (names compare without regard to case).
    pub fn set(&mut self, name: &str, expr: impl Into<String>) {
        let expr = expr.into();
        self.varying.retain(|v| !v.name.eq_ignore_ascii_case(name));
        match self.shared.iter_mut().find(|a| a.name.eq_ignore_ascii_case(name)) {
            Some(attribute) => attribute.expr = expr,
            None => self.shared.push(Attribute { name: name.to_owned(), expr }),
        }
    }

    /// Takes an attribute out, in whatever case of letters it is there.
    pub fn remove(&mut self, name: &str) {
        self.shared.retain(|a| !a.name.eq_ignore_ascii_case(name));
        self.varying.retain(|v| !v.name.eq_ignore_ascii_case(name));
    }

    /// Adds or replaces a varying attribute.
    pub fn set_varying(&mut self, name: &str, pieces: Vec<PieceKind>) {
        self.remove(name);
        let pieces = pieces.into_iter().map(|kind| Piece { kind: Some(kind) }).collect();
        self.varying.push(Varying { name: name.to_owned(), pieces });
    }

    /// Expression text of a shared attribute.
    pub fn shared(&self, name: &str) -> Option<&str> {
        self.shared.iter().find(|a| a.name.eq_ignore_ascii_case(name)).map(|a| a.expr.as_str())
    }

    /// Expression text of one attribute of one proc; `None` when the attribute is absent.
    pub fn attribute(&self, cluster: u32, proc: u32, name: &str) -> Option<String> {
        if let Some(text) = self.shared(name) {
            return Some(text.to_owned());
        }
        self.varying.iter().find(|v| v.name.eq_ignore_ascii_case(name)).map(|v| self.expand(v, cluster, proc))
    }

    /// All attributes of one proc as (name, expression text); the shared ones first.
    pub fn attributes(&self, cluster: u32, proc: u32) -> impl Iterator<Item = (&str, String)> {
        let shared = self.shared.iter().map(|a| (a.name.as_str(), a.expr.clone()));
        shared.chain(self.varying.iter().map(move |v| (v.name.as_str(), self.expand(v, cluster, proc))))
    }

    fn has_nul(&self) -> bool {
        let piece = |piece: &Piece| matches!(&piece.kind, Some(PieceKind::Text(text)) if text.contains('\0'));
        self.shared.iter().any(|a| a.expr.contains('\0'))
            || self.varying.iter().any(|v| v.pieces.iter().any(piece))
            || self.columns.iter().any(|column| column.text.contains('\0'))
    }

    /// The expression text of one varying attribute for one proc.
    pub fn expand(&self, varying: &Varying, cluster: u32, proc: u32) -> String {
        use std::fmt::Write as _;
        let per_row = self.per_row.max(1);
        let mut out = String::new();
        for piece in &varying.pieces {
            // Writing to a String cannot fail.
            let _ = match &piece.kind {
                Some(PieceKind::Text(text)) => out.write_str(text),
                Some(PieceKind::Cluster(_)) => write!(out, "{cluster}"),
                Some(PieceKind::Proc(_)) => write!(out, "{proc}"),
                Some(PieceKind::Step(_)) => write!(out, "{}", proc % per_row),
                Some(PieceKind::Row(_)) => write!(out, "{}", proc / per_row),
                Some(PieceKind::Column(index)) => {
                    let entry =
                        self.columns.get(*index as usize).map_or("", |c| c.get((proc / per_row) as usize));
                    out.write_str(entry)
                }
                None => Ok(()),
            };
        }
        out
    }

    /// Checks the shape of a template that came over the wire.
    pub fn check(&self) -> Result<(), Invalid> {
        let shape = |text: String| Err(Invalid::Shape(text));
        if self.procs == 0 || self.procs > limits::PROCS_PER_CLUSTER {
            return shape(format!("{} procs; 1 to {} are allowed", self.procs, limits::PROCS_PER_CLUSTER));
        }
        if self.per_row == 0 {
            return shape("per_row is 0".into());
        }
        let rows = self.procs.div_ceil(self.per_row) as usize;
        let attributes = self.shared.len() + self.varying.len();
        if attributes > limits::ATTRIBUTES_PER_AD {
            return shape(format!(
                "{attributes} attributes; at most {} are allowed",
                limits::ATTRIBUTES_PER_AD
            ));
        }
        // Of two that are alike, one reader would take the first and another the last.
        let mut names = std::collections::HashSet::new();
        let all = self.shared.iter().map(|a| &a.name).chain(self.varying.iter().map(|v| &v.name));
        for name in all {
            if !names.insert(name.to_ascii_lowercase()) {
                return shape(format!("{} is there twice", crate::text::shorten(name, 60)));
            }
        }
        for attribute in &self.shared {
            check_name(&attribute.name)?;
            if attribute.expr.len() > limits::EXPRESSION_BYTES {
                return shape(format!("{} is over {} bytes", attribute.name, limits::EXPRESSION_BYTES));
            }
        }
        for varying in &self.varying {
            check_name(&varying.name)?;
            let known = |p: &Piece| match p.kind {
                Some(PieceKind::Column(index)) => (index as usize) < self.columns.len(),
                Some(_) => true,
                None => false,
            };
            if varying.pieces.len() > limits::PIECES_PER_ATTRIBUTE || !varying.pieces.iter().all(known) {
                return shape(format!(
                    "{} has too many pieces, or names a column that is not there",
                    varying.name
                ));
            }
        }
        if self.has_nul() {
            return shape("a NUL character, which no expression can have".into());
        }
        self.check_size()?;
        for (index, column) in self.columns.iter().enumerate() {
            let ordered = column.ends.is_sorted()
                && column.ends.iter().all(|&e| column.text.is_char_boundary(e as usize))
                && column.ends.last().is_none_or(|&e| e as usize == column.text.len());
            if column.len() != rows || !ordered {
                return shape(format!(
                    "column {index} has {} entries for {rows} rows, or is out of order",
                    column.len()
                ));
            }
        }
        Ok(())
    }
}

impl JobTemplate {
    /// A job is as large as what its pieces stand for: an entry of the table may stand in many places.
    fn check_size(&self) -> Result<(), Invalid> {
        let longest: Vec<usize> = self.columns.iter().map(Column::longest).collect();
        let of_piece = |piece: &Piece| match &piece.kind {
            Some(PieceKind::Text(text)) => text.len(),
            Some(PieceKind::Column(index)) => longest.get(*index as usize).copied().unwrap_or(0),
            Some(_) => 10,
            None => 0,
        };
        let sum = |sizes: &mut dyn Iterator<Item = usize>| sizes.fold(0_usize, usize::saturating_add);
        let differing = sum(&mut self.varying.iter().flat_map(|v| v.pieces.iter().map(of_piece)));
        let names = self.varying.iter().map(|v| v.name.len());
        let shared = self.shared.iter().map(|a| a.name.len() + a.expr.len());
        let whole = sum(&mut names.chain(shared).chain([differing]));
        let too_large = |what: &str, bytes: usize, most: usize| {
            Err(Invalid::Shape(format!("{what} {bytes} bytes; at most {most} are allowed")))
        };
        if differing > limits::VARYING_BYTES {
            return too_large("what differs between jobs takes up to", differing, limits::VARYING_BYTES);
        }
        if whole > limits::AD_BYTES {
            return too_large("the attributes of a job take", whole, limits::AD_BYTES);
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), Invalid> {
    let mut chars = name.chars();
    let good = name.len() <= limits::NAME_BYTES
        && chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    if good {
        Ok(())
    } else {
        Err(Invalid::Shape(format!("{:?} is not an attribute name", crate::text::shorten(name, 60))))
    }
}

/// Is an attribute for its owner and for administrators only? People keep passwords in their jobs' environment.
pub fn is_secret(name: &str) -> bool {
    name.eq_ignore_ascii_case("Environment") || name.eq_ignore_ascii_case("Env")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep() -> JobTemplate {
        let mut t = JobTemplate { procs: 4, per_row: 2, ..JobTemplate::default() };
        t.set("Cmd", "\"/bin/echo\"");
        t.columns.push(["alpha", "b\u{e9}ta"].into_iter().collect());
        t.set_varying(
            "Args",
            vec![
                PieceKind::Text("\"".into()),
                PieceKind::Column(0),
                PieceKind::Text(" ".into()),
                PieceKind::Step(true),
                PieceKind::Text("\"".into()),
            ],
        );
        t
    }

    #[test]
    fn procs_take_their_row_and_step() {
        let t = sweep();
        t.check().unwrap();
        let args: Vec<_> = (0..4).map(|p| t.attribute(7, p, "args").unwrap()).collect();
        assert_eq!(args, ["\"alpha 0\"", "\"alpha 1\"", "\"b\u{e9}ta 0\"", "\"b\u{e9}ta 1\""]);
    }

    #[test]
    fn a_template_survives_its_wire_form() {
        let t = sweep();
        assert_eq!(JobTemplate::decode(t.encode_to_vec().as_slice()).unwrap(), t);
        let json = serde_json::to_string(&t).unwrap();
        assert_eq!(serde_json::from_str::<JobTemplate>(&json).unwrap(), t);
    }

    #[test]
    fn bad_shapes_are_refused() {
        let refuse = |change: fn(&mut JobTemplate)| {
            let mut t = sweep();
            change(&mut t);
            assert!(t.check().is_err(), "{t:?}");
        };
        refuse(|t| t.procs = 0);
        refuse(|t| t.per_row = 0);
        refuse(|t| t.columns[0].ends[0] = 900);
        refuse(|t| t.columns[0].ends[1] = 7); // inside a character
        refuse(|t| t.columns.clear());
        refuse(|t| t.shared[0].name = "a b".into());
        refuse(|t| t.shared[0].name = String::new());
        refuse(|t| t.procs = 9);
        refuse(|t| t.shared.push(Attribute { name: "cMD".into(), expr: "1".into() }));
        refuse(|t| t.shared.push(Attribute { name: "aRGS".into(), expr: "1".into() }));
    }

    /// A thousand times an entry of 600 kB was a submit of 675 kB that took five gigabytes.
    #[test]
    fn a_small_template_does_not_stand_for_huge_jobs() {
        let mut t = JobTemplate::of(1);
        t.columns.push([&"x".repeat(1_000)].into_iter().collect());
        t.set_varying("A", vec![PieceKind::Column(0); 250]);
        t.check().unwrap();
        t.set_varying("B", vec![PieceKind::Column(0); 250]);
        assert!(t.check().unwrap_err().to_string().contains("what differs between jobs"), "both together");
        t.remove("B");
        for n in 0..4 {
            t.set(&format!("C{n}"), "1".repeat(limits::EXPRESSION_BYTES));
        }
        assert!(t.check().unwrap_err().to_string().contains("the attributes of a job"));
    }
}
