//! The queue statement: how many jobs, over which items.
//!
//! `queue [N] [vars] [in | from | matching] [slice] items`. Items become the columns of a [`Table`]; turning keywords
//! into attributes is done elsewhere.

use config::lines::{Lines, Logical};
use config::{Diagnostic, Reader};
use model::template::Column;

use crate::files::{Context, Files};
use crate::glob;
use crate::live::{Table, Traits};

/// Most variables in one statement.
const VARIABLES: usize = 100;
/// Most bytes in one column.
const COLUMN_BYTES: usize = model::limits::SUBMIT_BYTES;

/// Where items come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    In,
    From,
    Matching,
}

/// True when a statement is a queue statement.
pub(crate) fn is_queue(text: &str) -> bool {
    let word = text.split(|c: char| c.is_whitespace() || c == '(').next().unwrap_or("");
    word.eq_ignore_ascii_case("queue")
}

/// Reads one queue statement with the lines that belong to it.
pub(crate) fn read(
    reader: &Reader<'_>,
    files: &dyn Files,
    context: &Context,
    logical: &Logical,
    lines: &mut Lines<'_>,
) -> Result<Table, Diagnostic> {
    let rest = &logical.text["queue".len()..];
    let offset = logical.text.len() - rest.len();
    let at = |o: usize, n: usize| logical.span.place(offset + o, n.max(1));
    let Some((kind, start, end)) = keyword(rest) else {
        let count = count(reader, rest, logical, offset)?;
        return Ok(Table { rows: 1, per_row: count, ..Table::default() });
    };
    let head = reader.expand(&rest[..start], &logical.span.skip(offset))?;
    let (number, variables) = split_head(&head);
    let per_row = count(reader, number, logical, offset)?;
    let mut names: Vec<String> = Vec::new();
    for name in variables.split(|c: char| c == ',' || c.is_whitespace()).filter(|n| !n.is_empty()) {
        if !config::names::is_name(name) {
            return Err(Diagnostic::error(format!("{name:?} is not a variable name")).at(at(0, start)));
        }
        if names.iter().any(|n| n.eq_ignore_ascii_case(name)) {
            return Err(Diagnostic::error(format!("the variable {name} is named twice")).at(at(0, start)));
        }
        names.push(name.to_ascii_lowercase());
    }
    if names.len() > VARIABLES {
        return Err(Diagnostic::error(format!("more than {VARIABLES} variables")).at(at(0, start)));
    }
    if names.is_empty() {
        names.push("item".to_owned());
    }
    let tail = rest[end..].trim_start();
    let tail_offset = rest.len() - tail.len();
    let (want, tail) = match kind {
        Kind::Matching => matching_word(tail),
        _ => (Want::Files, tail),
    };
    let (slice, tail) =
        Slice::read(tail).map_err(|message| Diagnostic::error(message).at(at(tail_offset, 1)))?;
    let body =
        Body::read(tail, lines).map_err(|message| Diagnostic::error(message).at(at(tail_offset, 1)))?;
    let mut columns = vec![Column::default(); names.len()];
    let mut numbers = Vec::new();
    let place = || at(tail_offset, rest.len() - tail_offset);
    match (kind, body) {
        (Kind::In, Body::Lines(text)) => in_items(&text, slice, &mut columns, &mut numbers),
        (Kind::In, Body::Word(text)) => {
            let text = reader.expand(text, &logical.span.skip(logical.text.len() - text.len()))?;
            in_items(&text, slice, &mut columns, &mut numbers);
        }
        (Kind::From, Body::Lines(text)) => from_items(&text, slice, &mut columns, &mut numbers),
        (Kind::From, Body::Word(text)) => {
            let name = reader.expand(text, &logical.span.skip(logical.text.len() - text.len()))?;
            let name = name.trim();
            if name.is_empty() {
                return Err(Diagnostic::error("from needs a file name").at(place()));
            }
            let found = match name.strip_suffix('|') {
                Some(command) => files.run(command.trim()),
                None => files.read(&context.absolute(name)),
            };
            let text = found
                .map_err(|e| Diagnostic::error(format!("cannot read items from {name}: {e}")).at(place()))?;
            from_items(&text, slice, &mut columns, &mut numbers);
        }
        (Kind::Matching, body) => {
            let text = match body {
                Body::Lines(text) => text,
                Body::Word(text) => text.to_owned(),
            };
            let text = reader.expand(&text, &logical.span)?;
            let found = matching(&text, want, files, context);
            if found.is_empty() {
                return Err(Diagnostic::error(format!("nothing matches {}", text.trim())).at(place()));
            }
            // What stands in for bytes that are no text names no file.
            if let Some(name) = found.iter().find(|name| name.contains(char::REPLACEMENT_CHARACTER)) {
                let message = format!("the file name {name} is not UTF-8; rename the file");
                return Err(Diagnostic::error(message).at(place()));
            }
            for (number, name) in slice.select(found.iter()) {
                numbers.push(number);
                columns[0].push(name);
            }
        }
    }
    if slice.parts.is_some() {
        // Items keep the numbers they have in the whole list.
        let column: Column = numbers.iter().map(ToString::to_string).collect();
        for name in ["row", "itemindex"] {
            if !names.iter().any(|n| n == name) {
                names.push(name.to_owned());
                columns.push(column.clone());
            }
        }
    }
    finish(names, columns, per_row).map_err(|message| Diagnostic::error(message).at(place()))
}

fn finish(names: Vec<String>, mut columns: Vec<Column>, per_row: u32) -> Result<Table, String> {
    let rows = columns[0].len();
    for column in &mut columns[1..] {
        // Only `from` fills the further variables; elsewhere they are empty.
        while column.len() < rows {
            column.push("");
        }
    }
    if rows == 0 {
        return Err("there are no items, so there is nothing to queue".into());
    }
    if rows as u64 * u64::from(per_row) > u64::from(model::limits::PROCS_PER_CLUSTER) {
        return Err(format!("more than {} jobs in one cluster", model::limits::PROCS_PER_CLUSTER));
    }
    table(names, columns, per_row)
}

/// A table from columns of equal length.
pub(crate) fn table(names: Vec<String>, columns: Vec<Column>, per_row: u32) -> Result<Table, String> {
    if columns.iter().any(|c| c.text.len() > COLUMN_BYTES) {
        return Err(format!("the items are over {} MiB", COLUMN_BYTES >> 20));
    }
    let traits: Vec<Traits> = columns.iter().map(Traits::of).collect();
    if traits.iter().any(|t| !t.unmarked) {
        return Err("an item holds a character of the private plane U+F0000, which is not supported".into());
    }
    if columns.iter().any(|c| c.text.contains('\0')) {
        return Err("an item holds a NUL character, which no argument and no file name can have".into());
    }
    let rows = columns.first().map_or(1, Column::len) as u32;
    Ok(Table { names, columns, traits, rows, per_row, ..Table::default() })
}

/// The first `in`, `from` or `matching` that stands as a word outside parentheses.
fn keyword(text: &str) -> Option<(Kind, usize, usize)> {
    let mut depth = 0i32;
    let mut start = None;
    for (i, c) in text.char_indices().chain(std::iter::once((text.len(), ' '))) {
        if c.is_alphanumeric() || matches!(c, '_' | '.' | '$') {
            start.get_or_insert(i);
            continue;
        }
        if let Some(begin) = start.take()
            && depth == 0
        {
            let word = &text[begin..i];
            let kind = [("in", Kind::In), ("from", Kind::From), ("matching", Kind::Matching)]
                .into_iter()
                .find(|(name, _)| word.eq_ignore_ascii_case(name));
            if let Some((_, kind)) = kind {
                return Some((kind, begin, i));
            }
        }
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Splits `2 * 3 x, y` into the count and the variables.
fn split_head(head: &str) -> (&str, &str) {
    let mut depth = 0i32;
    for (i, c) in head.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            c if depth == 0 && (c.is_alphabetic() || c == '_') => return head.split_at(i),
            _ => {}
        }
    }
    (head, "")
}

/// The number of jobs per item.
fn count(reader: &Reader<'_>, text: &str, logical: &Logical, offset: usize) -> Result<u32, Diagnostic> {
    let trimmed = text.trim().trim_end_matches(',').trim_end();
    if trimmed.is_empty() {
        return Ok(1);
    }
    let place = || logical.span.place(offset + (text.len() - text.trim_start().len()), trimmed.len());
    let mut expanded = reader.expand(trimmed, &logical.span.skip(offset))?;
    if config::names::is_name(expanded.trim())
        && let Some(definition) = reader.set.get(expanded.trim())
    {
        expanded = reader.expand(&definition.raw, &definition.span)?;
    }
    let value = config::scalar::evaluate(&expanded).ok().and_then(|v| match v {
        config::scalar::Scalar::Int(n) => Some(n),
        _ => None,
    });
    let Some(number) = value else {
        let near = trimmed.split_whitespace().find_map(|w| config::names::suggest(w, ["matching", "from"]));
        let finding = Diagnostic::error(format!("{trimmed:?} is not a number of jobs")).at(place());
        let hint = near.map_or_else(
            || "write queue, queue N, or queue N VAR in|from|matching ITEMS".to_owned(),
            |word| format!("did you mean {word}?"),
        );
        return Err(finding.hint(hint));
    };
    match u32::try_from(number) {
        Ok(0) => Err(Diagnostic::error("queue 0 submits no job")
            .at(place())
            .hint("leave the queue statement out of an if block to submit nothing")),
        Ok(n) if n <= model::limits::PROCS_PER_CLUSTER => Ok(n),
        _ => Err(Diagnostic::error(format!(
            "{number} jobs cannot be queued; 1 to {} can",
            model::limits::PROCS_PER_CLUSTER
        ))
        .at(place())),
    }
}

/// What `matching` wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Files,
    Directories,
    Any,
}

fn matching_word(tail: &str) -> (Want, &str) {
    for (word, want) in [("files", Want::Files), ("dirs", Want::Directories), ("any", Want::Any)] {
        if let Some(rest) = tail.get(word.len()..)
            && tail[..word.len()].eq_ignore_ascii_case(word)
            && rest.starts_with(|c: char| c.is_whitespace() || c == '[' || c == '(')
        {
            return (want, rest.trim_start());
        }
    }
    // Without a word, files and directories both count, as in a shell.
    (Want::Any, tail)
}

/// A slice as in Python.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    parts: Option<[Option<i64>; 3]>,
}

impl Slice {
    fn read(text: &str) -> Result<(Self, &str), String> {
        let text = text.trim_start();
        let Some(inner) = text.strip_prefix('[') else { return Ok((Self::default(), text)) };
        let end = inner.find(']').ok_or("this slice is never closed with ]")?;
        let body = &inner[..end];
        let mut parts = [None; 3];
        let fields: Vec<&str> = body.split(':').collect();
        if fields.len() > 3 {
            return Err(format!("[{body}] is not a slice such as [1:10:2]"));
        }
        for (slot, field) in parts.iter_mut().zip(&fields) {
            if !field.trim().is_empty() {
                let number = field.trim().parse::<i64>();
                *slot = Some(number.map_err(|_| format!("[{body}] is not a slice such as [1:10:2]"))?);
            }
        }
        // [n] is the same as [n:], as in the original.
        if fields.len() == 1 && parts[0].is_none() {
            return Err("[] is not a slice such as [1:10:2]".into());
        }
        if parts[2].is_some_and(|step| step < 1) {
            return Err("the step of a slice must be at least 1".into());
        }
        Ok((Self { parts: Some(parts) }, inner[end + 1..].trim_start()))
    }

    /// The chosen items with their numbers.
    fn select<T>(self, items: impl ExactSizeIterator<Item = T>) -> Vec<(usize, T)> {
        let Some([start, stop, step]) = self.parts else { return items.enumerate().collect() };
        let length = items.len() as i64;
        let clamp = |n: i64| if n < 0 { n.saturating_add(length) } else { n }.clamp(0, length);
        let (first, last) = (start.map_or(0, clamp), stop.map_or(length, clamp));
        let step = step.unwrap_or(1);
        let taken = |i: i64| i >= first && i < last && (i - first) % step == 0;
        items.enumerate().filter(|(i, _)| taken(*i as i64)).collect()
    }
}

/// The text of the items: between parentheses (perhaps over many lines), or the rest of the line.
enum Body<'a> {
    Lines(String),
    Word(&'a str),
}

impl<'a> Body<'a> {
    fn read(tail: &'a str, lines: &mut Lines<'_>) -> Result<Self, String> {
        let Some(inner) = tail.strip_prefix('(') else { return Ok(Self::Word(tail)) };
        if let Some(end) = inner.rfind(')') {
            return Ok(Self::Lines(inner[..end].to_owned()));
        }
        let mut text = inner.to_owned();
        while let Some(raw) = lines.next_raw() {
            if raw.trim_start().starts_with(')') {
                return Ok(Self::Lines(text));
            }
            text.push('\n');
            text.push_str(raw);
        }
        Err("the list that begins here never ends: no line begins with )".into())
    }
}

fn item_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Items of `in`: split at commas and blanks; only the first variable gets one.
fn in_items(text: &str, slice: Slice, columns: &mut [Column], numbers: &mut Vec<usize>) {
    let items: Vec<&str> = item_lines(text)
        .flat_map(|line| line.split(|c: char| c == ',' || c.is_whitespace()))
        .filter(|item| !item.is_empty())
        .collect();
    for (number, item) in slice.select(items.into_iter()) {
        numbers.push(number);
        columns[0].push(item);
    }
}

/// Items of `from`: one a line; the last variable takes the rest of the line.
fn from_items(text: &str, slice: Slice, columns: &mut [Column], numbers: &mut Vec<usize>) {
    if slice.parts.is_none() {
        for line in item_lines(text) {
            push_fields(line, columns);
        }
        return;
    }
    let rows: Vec<&str> = item_lines(text).collect();
    for (number, line) in slice.select(rows.into_iter()) {
        numbers.push(number);
        push_fields(line, columns);
    }
}

fn push_fields(line: &str, columns: &mut [Column]) {
    let Some((last, first)) = columns.split_last_mut() else { return };
    let mut rest = line;
    // A unit separator allows any other character in a field.
    let exact = rest.contains('\x1f');
    for column in first {
        let end = rest
            .find(|c: char| if exact { c == '\x1f' } else { c == ',' || c.is_whitespace() })
            .unwrap_or(rest.len());
        column.push(rest[..end].trim());
        rest = rest[end..].trim_start_matches(|c: char| c.is_whitespace() && c != '\x1f');
        rest = rest.strip_prefix(if exact { '\x1f' } else { ',' }).unwrap_or(rest).trim_start();
    }
    last.push(rest.trim());
}

/// The files or directories that match a list of patterns, sorted; each pattern may have patterns in its directories.
fn matching(text: &str, want: Want, files: &dyn Files, context: &Context) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for pattern in text.split(|c: char| c == ',' || c.is_whitespace()).filter(|p| !p.is_empty()) {
        let mut hits = Vec::new();
        descend(
            pattern.strip_prefix("./").unwrap_or(pattern),
            String::new(),
            want,
            files,
            context,
            &mut hits,
        );
        hits.sort_unstable();
        for hit in hits {
            if seen.insert(hit.clone()) {
                found.push(hit);
            }
        }
    }
    found
}

fn descend(
    pattern: &str,
    prefix: String,
    want: Want,
    files: &dyn Files,
    context: &Context,
    hits: &mut Vec<String>,
) {
    if hits.len() >= model::limits::PROCS_PER_CLUSTER as usize {
        return;
    }
    let (part, rest) = match pattern.split_once('/') {
        Some((part, rest)) => (part, Some(rest)),
        None => (pattern, None),
    };
    if let Some(rest) = rest
        && !glob::is_pattern(part)
        && !rest.is_empty()
    {
        return descend(rest, format!("{prefix}{part}/"), want, files, context, hits);
    }
    let here = if prefix.is_empty() { context.directory.clone() } else { context.absolute(&prefix) };
    let Ok(entries) = files.entries(&here) else { return };
    for entry in entries {
        // Hidden files must be asked for.
        if (entry.name.starts_with('.') && !part.starts_with('.')) || !glob::matches(part, &entry.name) {
            continue;
        }
        match rest {
            Some(rest) if !rest.is_empty() => {
                if entry.is_directory {
                    descend(rest, format!("{prefix}{}/", entry.name), want, files, context, hits);
                }
            }
            _ => match (entry.is_directory, want) {
                (true, Want::Directories | Want::Any) => hits.push(format!("{prefix}{}/", entry.name)),
                (false, Want::Files | Want::Any) if rest.is_none() => {
                    hits.push(format!("{prefix}{}", entry.name));
                }
                _ => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(text: &str, n: usize) -> Vec<usize> {
        let (slice, rest) = Slice::read(text).unwrap();
        assert_eq!(rest, "");
        slice.select(0..n).into_iter().map(|(_, i)| i).collect()
    }

    #[test]
    fn slices_are_those_of_python() {
        assert_eq!(slice("[1:3]", 5), [1, 2]);
        assert_eq!(slice("[::2]", 5), [0, 2, 4]);
        assert_eq!(slice("[-2:]", 5), [3, 4]);
        assert_eq!(slice("[:-2]", 5), [0, 1, 2]);
        assert_eq!(slice("[2]", 5), [2, 3, 4]);
        assert_eq!(slice("[-1]", 5), [4]);
        assert_eq!(slice("[9:]", 5), [0usize; 0]);
        assert_eq!(slice("[:99:3]", 5), [0, 3]);
        // The step counts from the first item that is taken, not from the list's.
        assert_eq!(slice("[1:10:3]", 12), [1, 4, 7]);
        assert_eq!(slice("[2:12:4]", 12), [2, 6, 10]);
        assert_eq!(slice("[-7::3]", 12), [5, 8, 11]);
        assert_eq!(slice("[4::5]", 20), [4, 9, 14, 19]);
        for bad in ["[", "[a]", "[1:2:3:4]", "[::0]", "[::-1]", "[]"] {
            assert!(Slice::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_split_at_commas_or_blanks() {
        let mut columns = vec![Column::default(); 2];
        for line in ["x1, y1 z", "x2,y2", "x3", "x4 y4, z", "a\x1fb, c"] {
            push_fields(line, &mut columns);
        }
        let row = |i| (columns[0].get(i), columns[1].get(i));
        assert_eq!(row(0), ("x1", "y1 z"));
        assert_eq!(row(1), ("x2", "y2"));
        assert_eq!(row(2), ("x3", ""));
        assert_eq!(row(3), ("x4", "y4, z"));
        assert_eq!(row(4), ("a", "b, c"));
    }

    #[test]
    fn heads_come_apart() {
        assert_eq!(split_head(" 2 * (3+x) a, b"), (" 2 * (3+x) ", "a, b"));
        assert_eq!(split_head("x"), ("", "x"));
        assert_eq!(keyword(" 2 in_x, y FROM file").map(|(k, s, _)| (k, s)), Some((Kind::From, 11)));
        assert_eq!(keyword(" (3 in 4)").map(|k| k.0), None);
        assert_eq!(keyword(" in(a)").map(|k| k.0), Some(Kind::In));
    }
}
