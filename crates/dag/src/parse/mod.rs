//! DAG files to a [`Dag`]. The texts of errors are those that users of the original know.
//!
//! `words` takes lines apart; `node` reads the lines that make nodes; this file reads those about nodes, and those about the whole.

mod node;
mod words;

use std::collections::BTreeMap;

use crate::graph::{Abort, Category, Dag, Dot, Node, NodeId, NodeKind, Retry, StatusFile};
pub(crate) use words::quote;
use words::{Line, Words};

/// Most nodes of a DAG.
pub const NODES: usize = 1_000_000;
/// Most edges of a DAG.
pub const EDGES: usize = 10_000_000;
/// Most files that a DAG is read from, splices and included ones counted each time.
pub const FILES: usize = 10_000;
/// Most splices and included files inside one another.
pub const DEPTH: usize = 64;
/// Longest line.
pub const LINE_BYTES: usize = 64 << 10;
/// Longest name of a node, with its splices.
pub const NAME_BYTES: usize = 1_000;

/// Where DAG files are read from.
pub trait Files {
    /// The text of a file; relative names belong to the DAG's directory.
    fn read(&self, path: &str) -> Result<String, String>;
}

/// Why a DAG cannot be used: lines for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError(pub String);

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

type Parsed<T> = Result<T, ParseError>;

/// How DAG files are to be read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Each DAG file's nodes belong to the directory that the file is in.
    pub use_dag_dir: bool,
}

/// Reads DAG files into one DAG. Several files are one DAG, with the number of the file in front of each name.
pub fn parse(names: &[String], options: Options, files: &dyn Files) -> Parsed<Dag> {
    let dag = Dag { names: names.to_vec(), ..Dag::default() };
    let mut parser = Parser::new(dag, files);
    for (number, name) in names.iter().enumerate() {
        let prefix = if names.len() > 1 { format!("{number}.") } else { String::new() };
        let (dir, file) = match name.rsplit_once('/') {
            Some((dir, file)) if options.use_dag_dir => (Some(dir.to_owned()), file),
            _ => (None, name.as_str()),
        };
        let scope = Scope { prefix, dir, splices: BTreeMap::new(), is_splice: false };
        parser.scopes.push(scope);
        parser.read_file(file)?;
        parser.scopes.pop();
    }
    parser.finish()
}

/// Reads a rescue or save file, which marks nodes of a DAG as done and sets their retries.
pub fn read_marks(dag: Dag, file: &str, files: &dyn Files) -> Parsed<Dag> {
    let mut parser = Parser::new(dag, files);
    parser.scopes.push(Scope::default());
    parser.read_file(file)?;
    parser.finish()
}

/// Nodes by the numbers of their pins.
type Pins = BTreeMap<u32, Vec<NodeId>>;

/// What a name means here.
#[derive(Debug, Default)]
struct Scope {
    /// In front of every name.
    prefix: String,
    dir: Option<String>,
    splices: BTreeMap<String, Splice>,
    is_splice: bool,
}

/// The nodes of a splice.
#[derive(Debug, Clone, Default)]
struct Splice {
    first: Vec<NodeId>,
    last: Vec<NodeId>,
    pins_in: Pins,
    pins_out: Pins,
}

struct Parser<'a> {
    files: &'a dyn Files,
    dag: Dag,
    categories: BTreeMap<String, u32>,
    descriptions: BTreeMap<String, String>,
    scopes: Vec<Scope>,
    /// Pins of the splices that are being read, by the depth of their scope.
    pins: Vec<(Pins, Pins)>,
    read: usize,
    depth: usize,
    edges: usize,
    joins: usize,
    rejected: Option<String>,
}

impl<'a> Parser<'a> {
    fn new(dag: Dag, files: &'a dyn Files) -> Self {
        let categories = dag.categories.iter().enumerate().map(|(i, c)| (c.name.clone(), i as u32)).collect();
        let edges = dag.nodes.iter().map(|n| n.children.len()).sum();
        Self {
            files,
            dag,
            categories,
            descriptions: BTreeMap::new(),
            scopes: Vec::new(),
            pins: Vec::new(),
            read: 0,
            depth: 0,
            edges,
            joins: 0,
            rejected: None,
        }
    }

    fn finish(self) -> Parsed<Dag> {
        if let Some(place) = self.rejected {
            return Err(ParseError(format!(
                "ERROR: DAG input file {place} contains the REJECT token; it is not to be run"
            )));
        }
        Ok(self.dag)
    }

    fn scope(&mut self) -> &mut Scope {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::default());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    fn read_file(&mut self, name: &str) -> Parsed<()> {
        self.read += 1;
        if self.read > FILES || self.depth >= DEPTH {
            return Err(ParseError(format!(
                "ERROR: {name}: a DAG is read from at most {FILES} files, at most {DEPTH} inside one another; does a file include itself?"
            )));
        }
        let path = self.in_scope(name);
        let text = self.files.read(&path).map_err(|why| ParseError(format!("ERROR: {name}: {why}")))?;
        self.depth += 1;
        let done = self.read_text(name, &text);
        self.depth -= 1;
        done
    }

    /// A path of this scope, relative to the DAG's directory.
    fn in_scope(&mut self, path: &str) -> String {
        match &self.scope().dir {
            Some(dir) if !path.starts_with('/') => format!("{dir}/{path}"),
            _ => path.to_owned(),
        }
    }

    fn read_text(&mut self, file: &str, text: &str) -> Parsed<()> {
        let mut lines = text.lines().enumerate();
        while let Some((at, text)) = lines.next() {
            let line = Line { file, number: at + 1, text: text.trim() };
            if line.text.len() > LINE_BYTES {
                return Err(line.wrong(&format!("the line is longer than {LINE_BYTES} bytes")));
            }
            if line.text.is_empty() || line.text.starts_with('#') {
                continue;
            }
            if line.text.contains('\0') {
                return Err(line.wrong("the line holds a NUL character; is this a DAG file?"));
            }
            let mut words = Words::of(line.text);
            let command = words.next().unwrap_or_default().to_ascii_uppercase();
            match command.as_str() {
                "JOB" | "FINAL" | "SERVICE" | "DATA" => {
                    let braces = Self::braces(line, &mut lines)?;
                    self.read_node(line, &command, words, braces)?;
                }
                "SUBMIT-DESCRIPTION" => {
                    let Some(name) = words.next() else {
                        return Err(line.wrong("no name for the description"));
                    };
                    let Some(text) = Self::braces(line, &mut lines)? else {
                        return Err(line.wrong("expected { behind the name of a SUBMIT-DESCRIPTION"));
                    };
                    self.descriptions.insert(name.to_owned(), text);
                }
                _ => self.read_command(line, &command, words)?,
            }
        }
        Ok(())
    }

    /// The lines between braces, if this line opens them.
    fn braces<'t>(
        line: Line<'_>,
        lines: &mut impl Iterator<Item = (usize, &'t str)>,
    ) -> Parsed<Option<String>> {
        if !line.text.ends_with('{') {
            return Ok(None);
        }
        let mut inside = String::new();
        for (_, text) in lines {
            if text.trim() == "}" {
                return Ok(Some(inside));
            }
            inside.push_str(text);
            inside.push('\n');
        }
        Err(line.wrong("the submit description has no } on a line of its own at its end"))
    }

    fn read_command(&mut self, line: Line<'_>, command: &str, mut words: Words<'_>) -> Parsed<()> {
        match command {
            "SUBDAG" => self.read_sub_dag(line, words),
            "SPLICE" => self.read_splice(line, words),
            "INCLUDE" => {
                let Some(file) = words.next() else { return Err(line.wrong("INCLUDE needs a file")) };
                self.read_file(file)
            }
            "PARENT" => self.read_edges(line, words),
            "CONNECT" => self.connect(line, words),
            "PIN_IN" | "PIN_OUT" => self.read_pin(line, command, words),
            "REJECT" => {
                self.rejected.get_or_insert_with(|| format!("{} (line {})", line.file, line.number));
                Ok(())
            }
            "PROVISIONER" => Err(line.wrong(
                "PROVISIONER nodes are not supported: machines of this pool are not brought up by jobs; use a JOB that the others are children of",
            )),
            "CONFIG" | "SET_JOB_ATTR" | "ENV" | "NODE_STATUS_FILE" | "JOBSTATE_LOG" | "DOT" | "MAXJOBS" => {
                self.read_about_all(line, command, words)
            }
            "VARS" | "RETRY" | "SCRIPT" | "PRE_SKIP" | "PRIORITY" | "CATEGORY" | "ABORT-DAG-ON" | "DONE"
            | "SAVE_POINT_FILE" => self.read_about_nodes(line, command, words),
            _ => Err(ParseError(format!(
                "{} (line {}): ERROR: expected JOB, DATA, SUBDAG, FINAL, SCRIPT, PARENT, RETRY, ABORT-DAG-ON, DOT, VARS, PRIORITY, \
                 CATEGORY, MAXJOBS, CONFIG, SET_JOB_ATTR, SPLICE, PROVISIONER, SERVICE, NODE_STATUS_FILE, REJECT, JOBSTATE_LOG, \
                 PRE_SKIP, DONE, CONNECT, PIN_IN, PIN_OUT, INCLUDE, SAVE_POINT_FILE orSUBMIT-DESCRIPTION token (found {})",
                line.file,
                line.number,
                words::first(line.text)
            ))),
        }
    }

    /// The node of a name in this scope.
    fn find(&mut self, line: Line<'_>, name: &str) -> Parsed<NodeId> {
        let whole = format!("{}{name}", self.scope().prefix);
        match self.dag.by_name.get(&whole) {
            Some(id) => Ok(*id),
            None => Err(line.wrong(&format!("Unknown Job {name}"))),
        }
    }

    /// The nodes that a line is about: one, or all of this scope but FINAL.
    fn find_all(&mut self, line: Line<'_>, name: &str) -> Parsed<Vec<NodeId>> {
        if !name.eq_ignore_ascii_case("ALL_NODES") {
            return Ok(vec![self.find(line, name)?]);
        }
        let prefix = self.scope().prefix.clone();
        let mine = self.dag.iter().filter(|(_, n)| {
            n.name.starts_with(&prefix) && !matches!(n.kind, NodeKind::Final | NodeKind::Join)
        });
        Ok(mine.map(|(id, _)| id).collect())
    }

    fn read_about_nodes(&mut self, line: Line<'_>, command: &str, mut words: Words<'_>) -> Parsed<()> {
        if command == "SCRIPT" {
            return self.read_script(line, words);
        }
        let Some(name) = words.next() else {
            return Err(line.wrong(&format!("{command} needs the name of a node")));
        };
        if command == "SAVE_POINT_FILE" && name.eq_ignore_ascii_case("ALL_NODES") {
            return Err(line.wrong("SAVE_POINT_FILE is for one node, not for ALL_NODES"));
        }
        let nodes = self.find_all(line, name)?;
        let change: Box<dyn Fn(&mut Node)> = match command {
            "VARS" => {
                let vars = words::vars(line, words.rest())?;
                Box::new(move |n| n.vars.extend(vars.iter().cloned()))
            }
            "RETRY" => {
                let times = words::number(line, words.next(), "RETRY needs how often")?;
                let times = u32::try_from(times).map_err(|_| line.wrong("RETRY needs a number from 0"))?;
                let unless = match words.next() {
                    None => None,
                    Some(w) if w.eq_ignore_ascii_case("UNLESS-EXIT") => {
                        Some(words::number(line, words.next(), "UNLESS-EXIT needs an exit code")?)
                    }
                    Some(w) => {
                        return Err(line.wrong(&format!("expected UNLESS-EXIT behind RETRY, found {w}")));
                    }
                };
                Box::new(move |n| n.retry = Some(Retry { times, unless }))
            }
            "PRE_SKIP" => {
                let code = words::number(line, words.next(), "PRE_SKIP needs an exit code")?;
                Box::new(move |n| n.pre_skip = Some(code))
            }
            "PRIORITY" => {
                let priority = words::number(line, words.next(), "PRIORITY needs a number")?;
                Box::new(move |n| n.priority = priority)
            }
            "CATEGORY" => {
                let Some(category) = words.next() else { return Err(line.wrong("CATEGORY needs a name")) };
                let category = self.category(category);
                Box::new(move |n| n.category = Some(category))
            }
            "ABORT-DAG-ON" => {
                let on = words::number(line, words.next(), "ABORT-DAG-ON needs an exit code")?;
                let returns = match words.next() {
                    None => None,
                    Some(w) if w.eq_ignore_ascii_case("RETURN") => {
                        let code = words::number(line, words.next(), "RETURN needs an exit code")?;
                        Some(
                            u8::try_from(code)
                                .map_err(|_| line.wrong("RETURN needs a number from 0 to 255"))?,
                        )
                    }
                    Some(w) => return Err(line.wrong(&format!("expected RETURN, found {w}"))),
                };
                Box::new(move |n| n.abort = Some(Abort { on, returns }))
            }
            "SAVE_POINT_FILE" => {
                let file = words.next().unwrap_or_default().to_owned();
                Box::new(move |n| n.save_point = Some(file.clone()))
            }
            _ => Box::new(|n| n.done = n.kind != NodeKind::Final),
        };
        for id in nodes {
            change(&mut self.dag.nodes[id.index()]);
        }
        Ok(())
    }

    /// The throttle of a name. In a splice a plain name is the splice's own.
    fn category(&mut self, name: &str) -> u32 {
        let scope = self.scope();
        let whole = if name.starts_with('+') || !scope.is_splice {
            name.to_owned()
        } else {
            format!("{}{name}", scope.prefix)
        };
        if let Some(known) = self.categories.get(&whole) {
            return *known;
        }
        let number = self.dag.categories.len() as u32;
        self.dag.categories.push(Category { name: whole.clone(), most: None });
        self.categories.insert(whole, number);
        number
    }

    fn read_about_all(&mut self, line: Line<'_>, command: &str, mut words: Words<'_>) -> Parsed<()> {
        let rest = words.rest();
        let first = words.next().unwrap_or_default().to_owned();
        if first.is_empty() {
            return Err(line.wrong(&format!("{command} needs more words")));
        }
        match command {
            "CONFIG" => {
                let file = self.in_scope(&first);
                match &self.dag.config {
                    Some(other) if *other != file => {
                        return Err(line.wrong(&format!("two different CONFIG files: {other} and {file}")));
                    }
                    _ => self.dag.config = Some(file),
                }
            }
            "SET_JOB_ATTR" => {
                let Some((name, value)) = rest.split_once('=') else {
                    return Err(line.wrong("SET_JOB_ATTR needs NAME = EXPRESSION"));
                };
                self.dag.job_attributes.push((name.trim().to_owned(), value.trim().to_owned()));
            }
            "ENV" => {
                let given = words.rest();
                if first.eq_ignore_ascii_case("GET") {
                    let names = given.split([',', ' ', '\t']).filter(|n| !n.is_empty());
                    self.dag.env_get.extend(names.map(str::to_owned));
                } else if first.eq_ignore_ascii_case("SET") {
                    for pair in given.split(';').map(str::trim).filter(|p| !p.is_empty()) {
                        let Some((name, value)) = pair.split_once('=') else {
                            return Err(line.wrong(&format!("ENV SET needs NAME=VALUE, found {pair}")));
                        };
                        self.dag.env_set.push((name.trim().to_owned(), value.to_owned()));
                    }
                } else {
                    return Err(line.wrong(&format!("expected GET or SET behind ENV, found {first}")));
                }
            }
            "NODE_STATUS_FILE" => {
                let (mut seconds, mut always) = (60, false);
                for word in words {
                    if word.eq_ignore_ascii_case("ALWAYS-UPDATE") {
                        always = true;
                    } else {
                        seconds = word
                            .parse()
                            .map_err(|_| line.wrong(&format!("{word} is no number of seconds")))?;
                    }
                }
                self.dag.status_file = Some(StatusFile { file: first, seconds, always });
            }
            "JOBSTATE_LOG" => self.dag.jobstate_log = Some(first),
            "MAXJOBS" => {
                let most = words::number(line, words.next(), "MAXJOBS needs a number")?;
                let most = u32::try_from(most).map_err(|_| line.wrong("MAXJOBS needs a number from 0"))?;
                let category = self.category(&first);
                self.dag.categories[category as usize].most = Some(most);
            }
            _ => {
                let mut dot = Dot { file: first, update: false, overwrite: true, include: None };
                while let Some(word) = words.next() {
                    match word.to_ascii_uppercase().as_str() {
                        "UPDATE" => dot.update = true,
                        "DONT-UPDATE" => dot.update = false,
                        "OVERWRITE" => dot.overwrite = true,
                        "DONT-OVERWRITE" => dot.overwrite = false,
                        "INCLUDE" => dot.include = words.next().map(str::to_owned),
                        _ => return Err(line.wrong(&format!("DOT does not know {word}"))),
                    }
                }
                self.dag.dot = Some(dot);
            }
        }
        Ok(())
    }
}
