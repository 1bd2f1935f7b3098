//! `-af` and `-format`: chosen values of each ad.

use classad::{ClassAd, Expr, Scope, Value};

use crate::selection::id_of;

/// What is printed of each ad.
#[derive(Debug, Default)]
pub(crate) struct Mask {
    columns: Vec<Column>,
    /// A heading over each column, and columns in line.
    headings: bool,
    job_id: bool,
    separator: Option<&'static str>,
    labels: bool,
    newlines: bool,
    blank_line: bool,
    is_auto: bool,
}

#[derive(Debug)]
struct Column {
    source: String,
    expr: Option<Expr>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// As it is evaluated; strings with their quotes if so.
    Value { quoted: bool },
    /// As it is written in the ad.
    Raw,
    /// A format of printf.
    Printf(String),
}

impl Mask {
    pub(crate) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// `-af:LETTERS WORDS`
    pub(crate) fn add_auto(&mut self, letters: &str, words: &[&str]) -> Result<(), String> {
        let (mut quoted, mut raw) = (false, false);
        for letter in letters.chars() {
            match letter {
                'j' => self.job_id = true,
                'h' => self.headings = true,
                'r' | 'o' => raw = true,
                't' => self.separator = Some("\t"),
                ',' => self.separator = Some(", "),
                'n' => self.newlines = true,
                'l' => self.labels = true,
                'g' => self.blank_line = true,
                'V' => quoted = true,
                ':' => {}
                other => return Err(format!("-af knows j h r t V , n l o g, not {other}\n")),
            }
        }
        self.is_auto = true;
        for word in words {
            let expr = Expr::parse(word).map_err(|e| format!("-af {word}: {e}\n"))?;
            let form = if raw { Form::Raw } else { Form::Value { quoted } };
            self.columns.push(Column { source: (*word).to_owned(), expr: Some(expr), form });
        }
        Ok(())
    }

    /// `-format FORMAT ATTRIBUTE`
    pub(crate) fn add_format(&mut self, format: &str, source: &str) {
        let (expr, form) = (Expr::parse(source).ok(), Form::Printf(unescape(format)));
        self.columns.push(Column { source: source.to_owned(), expr, form });
    }

    pub(crate) fn render(&self, ads: &[ClassAd], now: i64) -> String {
        if !self.is_auto {
            let one = |ad| self.columns.iter().map(move |column| column.text(ad, now)).collect::<String>();
            return ads.iter().map(one).collect();
        }
        let mut rows: Vec<Vec<String>> = ads.iter().map(|ad| self.cells(ad, now)).collect();
        if self.headings {
            let id = self.job_id.then(|| " ID".to_owned());
            rows.insert(0, id.into_iter().chain(self.columns.iter().map(|c| c.source.clone())).collect());
            if self.separator.is_none() && !self.newlines {
                return in_line(&rows);
            }
        }
        let separator = if self.newlines { "\n" } else { self.separator.unwrap_or(" ") };
        let end = if self.blank_line { "\n\n" } else { "\n" };
        rows.iter().map(|row| format!("{}{end}", row.join(separator))).collect()
    }

    fn cells(&self, ad: &ClassAd, now: i64) -> Vec<String> {
        let (cluster, proc) = id_of(ad);
        let id = self.job_id.then(|| format!("{cluster}.{proc}"));
        let label = |column: &Column| {
            let text = column.text(ad, now);
            if self.labels { format!("{} = {text}", column.source) } else { text }
        };
        id.into_iter().chain(self.columns.iter().map(label)).collect()
    }
}

/// Columns as wide as their widest entry.
fn in_line(rows: &[Vec<String>]) -> String {
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|t| t.chars().count()).max();
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(text, width)| format!("{text:width$}")).collect();
        format!("{}\n", cells.join(" "))
    };
    rows.iter().map(line).collect()
}

impl Column {
    fn text(&self, ad: &ClassAd, now: i64) -> String {
        let value = || self.expr.as_ref().map_or(Value::Undefined, |expr| Scope::of(ad).now(now).eval(expr));
        match &self.form {
            Form::Value { quoted } => plain(&value(), *quoted),
            Form::Raw => match ad.get(&self.source) {
                Some(expr) => expr.to_old_string(),
                None => "undefined".to_owned(),
            },
            Form::Printf(format) => match value() {
                // Nothing is printed of what is not there, not even the text around it, unless the format takes any kind of value.
                Value::Undefined | Value::Error if !takes_any_value(format) => String::new(),
                value => printf(format, &value),
            },
        }
    }
}

fn plain(value: &Value, quoted: bool) -> String {
    match value {
        Value::Str(text) if !quoted => text.to_string_lossy().into_owned(),
        other => Expr::literal(other.clone()).to_old_string(),
    }
}

/// `\n` and its kin, as a shell hands them over.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some(other @ ('\\' | '"' | '\'')) => out.push(other),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

/// Does a format convert by `%v` or `%V`, which print what is undefined by that word?
fn takes_any_value(format: &str) -> bool {
    let plain = format.replace("%%", "");
    let conversion =
        plain.split_once('%').map(|(_, rest)| rest.trim_start_matches(|c| "-+ #0123456789.".contains(c)));
    conversion.is_some_and(|rest| rest.starts_with(['v', 'V']))
}

/// One value in a format with one conversion.
fn printf(format: &str, value: &Value) -> String {
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let mut spec = String::new();
        while let Some(more) = chars.next_if(|c| "-+ #0123456789.".contains(*c)) {
            spec.push(more);
        }
        while chars.next_if(|c| "hlLzq".contains(*c)).is_some() {}
        if let Some(conversion) = chars.next() {
            out.push_str(&convert(&spec, conversion, value));
        }
    }
    out
}

/// Wider than any table.
const WIDEST: usize = 4_096;

fn convert(spec: &str, conversion: char, value: &Value) -> String {
    let flags: String = spec.chars().take_while(|c| "-+ #0".contains(*c)).collect();
    let (width, precision) =
        spec[flags.len()..].split_once('.').map_or((&spec[flags.len()..], None), |(w, p)| {
            (w, Some(p.parse::<usize>().unwrap_or(0).min(WIDEST)))
        });
    let width = width.parse::<usize>().unwrap_or(0).min(WIDEST);
    let number = value.as_number().or_else(|| value.as_bool().map(|b| f64::from(u8::from(b))));
    let whole = value.as_int().or(number.map(|n| n as i64));
    let read = |text: &str| text.trim().parse::<f64>().ok();
    let number = number.or_else(|| value.as_str().and_then(read));
    let whole = whole.or(number.map(|n| n as i64));
    let cut = |text: String| precision.map_or(text.clone(), |p| text.chars().take(p).collect());
    let text = match (conversion, whole, number) {
        ('d' | 'i' | 'u', Some(n), _) => n.to_string(),
        ('x', Some(n), _) => format!("{n:x}"),
        ('X', Some(n), _) => format!("{n:X}"),
        ('o', Some(n), _) => format!("{n:o}"),
        ('c', Some(n), _) => {
            u32::try_from(n).ok().and_then(char::from_u32).map(String::from).unwrap_or_default()
        }
        ('f' | 'F', _, Some(n)) => format!("{n:.*}", precision.unwrap_or(6)),
        ('e' | 'E', _, Some(n)) => format!("{n:.*e}", precision.unwrap_or(6)),
        ('g' | 'G', _, Some(n)) => format!("{n}"),
        ('s' | 'v', ..) => cut(plain(value, false)),
        ('V', ..) => cut(plain(value, true)),
        _ => String::new(),
    };
    let signed = number.is_some_and(|n| n >= 0.0) && flags.contains('+') && !"svV".contains(conversion);
    let text = if signed { format!("+{text}") } else { text };
    match (flags.contains('-'), flags.contains('0') && !"svV".contains(conversion)) {
        (true, _) => format!("{text:<width$}"),
        (false, true) => {
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+'])));
            format!("{sign}{digits:0>0$}", width.saturating_sub(sign.len()))
        }
        (false, false) => format!("{text:>width$}"),
    }
}
