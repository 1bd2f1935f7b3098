//! Lines that make nodes and edges.

use super::words::{self, Line, Words};
use super::{EDGES, NAME_BYTES, NODES, ParseError, Parsed, Parser, Scope, Splice};
use crate::graph::{DebugStream, Node, NodeId, NodeKind, Script, Submit};

const RESERVED: [&str; 3] = ["PARENT", "CHILD", "ALL_NODES"];

impl Parser<'_> {
    pub(super) fn read_node(
        &mut self,
        line: Line<'_>,
        command: &str,
        mut words: Words<'_>,
        braces: Option<String>,
    ) -> Parsed<()> {
        let kind = match command {
            "FINAL" => NodeKind::Final,
            "SERVICE" => NodeKind::Service,
            _ => NodeKind::Job,
        };
        let syntax = if command == "DATA" { "JOB" } else { command };
        let Some(name) = words.next() else {
            return Err(line.wrong(&format!("{command} needs a node name")));
        };
        let submit = match braces {
            Some(text) => Submit::Inline(text),
            None => match words.next() {
                None => return Err(line.wrong(&format!("node {name} has no submit file"))),
                Some(file) => match self.descriptions.get(file) {
                    Some(text) => Submit::Inline(text.clone()),
                    None => Submit::File(file.to_owned()),
                },
            },
        };
        let is_inline = line.text.ends_with('{');
        let rest = if is_inline { Words::of("") } else { words };
        let only_final = kind == NodeKind::Final && self.dag.nodes.iter().any(|n| n.kind == NodeKind::Final);
        if only_final {
            return Err(line.wrong("there is a FINAL node already; a DAG has one"));
        }
        if kind == NodeKind::Final && self.scopes.len() > 1 {
            return Err(line.wrong("a splice cannot have a FINAL node"));
        }
        self.add_node(line, name, kind, submit, rest, syntax)
    }

    pub(super) fn read_sub_dag(&mut self, line: Line<'_>, mut words: Words<'_>) -> Parsed<()> {
        let how = words.next().unwrap_or_default();
        if !how.eq_ignore_ascii_case("EXTERNAL") {
            return Err(line.wrong("only SUBDAG EXTERNAL is known"));
        }
        let (Some(name), Some(file)) = (words.next(), words.next()) else {
            return Err(line.wrong("SUBDAG EXTERNAL needs a node name and a DAG file"));
        };
        self.add_node(line, name, NodeKind::SubDag, Submit::File(file.to_owned()), words, "SUBDAG EXTERNAL")
    }

    fn add_node(
        &mut self,
        line: Line<'_>,
        name: &str,
        kind: NodeKind,
        submit: Submit,
        mut options: Words<'_>,
        syntax: &str,
    ) -> Parsed<()> {
        if RESERVED.iter().any(|word| word.eq_ignore_ascii_case(name)) {
            return Err(line.wrong("JobName cannot be a reserved word"));
        }
        let whole = format!("{}{name}", self.scope().prefix);
        if whole.len() > NAME_BYTES || self.dag.nodes.len() >= NODES {
            return Err(line.wrong(&format!(
                "a DAG has at most {NODES} nodes, with names of at most {NAME_BYTES} bytes"
            )));
        }
        let known_splice = self.scope().splices.contains_key(name);
        if self.dag.by_name.contains_key(&whole) || known_splice {
            return Err(ParseError(format!(
                "{}\nExample syntax is: {syntax} <nodename> submitfile [DIR directory] [NOOP] [DONE]",
                line.wrong(&format!("node name '{name}' already exists in DAG"))
            )));
        }
        let mut node = Node::new(whole.clone(), kind, submit);
        let mut dir = None;
        while let Some(word) = options.next() {
            match word.to_ascii_uppercase().as_str() {
                "DIR" => match options.next() {
                    Some(given) => dir = Some(given.to_owned()),
                    None => return Err(line.wrong("DIR needs a directory")),
                },
                "NOOP" => node.noop = true,
                "DONE" => node.done = kind != NodeKind::Final,
                _ => {
                    return Err(
                        line.wrong(&format!("invalid parameter {word} behind the node's submit file"))
                    );
                }
            }
        }
        node.dir = match (self.scope().dir.clone(), dir) {
            (Some(outer), Some(dir)) if !dir.starts_with('/') => Some(format!("{outer}/{dir}")),
            (outer, None) => outer,
            (_, dir) => dir,
        };
        self.push(node);
        Ok(())
    }

    fn push(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.dag.nodes.len() as u32);
        self.dag.by_name.insert(node.name.clone(), id);
        self.dag.nodes.push(node);
        id
    }

    /// `SPLICE NAME FILE [DIR D]`: the file's nodes, under names that begin with the splice's.
    pub(super) fn read_splice(&mut self, line: Line<'_>, mut words: Words<'_>) -> Parsed<()> {
        let (Some(name), Some(file)) = (words.next(), words.next()) else {
            return Err(line.wrong("SPLICE needs a name and a file"));
        };
        let dir = match (words.next(), words.next()) {
            (None, _) => None,
            (Some(word), Some(dir)) if word.eq_ignore_ascii_case("DIR") => Some(dir),
            (Some(word), _) => {
                return Err(line.wrong(&format!("invalid parameter {word} behind the splice's file")));
            }
        };
        let prefix = format!("{}{name}+", self.scope().prefix);
        let whole = format!("{}{name}", self.scope().prefix);
        if self.scope().splices.contains_key(name) || self.dag.by_name.contains_key(&whole) {
            return Err(line.wrong(&format!("splice name '{name}' already exists in DAG")));
        }
        let dir = match (self.scope().dir.clone(), dir) {
            (Some(outer), Some(dir)) if !dir.starts_with('/') => Some(format!("{outer}/{dir}")),
            (outer, None) => outer,
            (_, Some(dir)) => Some(dir.to_owned()),
        };
        let begin = self.dag.nodes.len();
        self.scopes.push(Scope { prefix, dir, is_splice: true, ..Scope::default() });
        self.pins.push(Default::default());
        let read = self.read_file(file);
        self.scopes.pop();
        let (pins_in, pins_out) = self.pins.pop().unwrap_or_default();
        read?;
        let inside = || (begin..self.dag.nodes.len()).map(|at| NodeId(at as u32));
        let counts = |id: &NodeId| self.dag.node(*id).counts();
        let first = inside().filter(|id| counts(id) && self.dag.node(*id).parents.is_empty()).collect();
        let last = inside().filter(|id| counts(id) && self.dag.node(*id).children.is_empty()).collect();
        let splice = Splice { first, last, pins_in, pins_out };
        self.scope().splices.insert(name.to_owned(), splice);
        Ok(())
    }

    pub(super) fn read_pin(&mut self, line: Line<'_>, command: &str, mut words: Words<'_>) -> Parsed<()> {
        let Some(name) = words.next() else { return Err(line.wrong(&format!("{command} needs a node"))) };
        let id = self.find(line, name)?;
        let number = words::number(line, words.next(), "a pin has a number")?;
        let number = u32::try_from(number).map_err(|_| line.wrong("a pin has a number from 1"))?;
        let Some((pins_in, pins_out)) = self.pins.last_mut() else {
            return Err(line.wrong("pins are for the nodes of a splice"));
        };
        let pins = if command == "PIN_IN" { pins_in } else { pins_out };
        pins.entry(number).or_default().push(id);
        Ok(())
    }

    pub(super) fn connect(&mut self, line: Line<'_>, mut words: Words<'_>) -> Parsed<()> {
        let mut splice = |parser: &mut Self| {
            let name = words.next().unwrap_or_default().to_owned();
            let found = parser.scope().splices.get(&name).cloned();
            found.ok_or_else(|| line.wrong(&format!("CONNECT: there is no splice {name}")))
        };
        let (from, to) = (splice(self)?, splice(self)?);
        if from.pins_out.is_empty() || from.pins_out.keys().ne(to.pins_in.keys()) {
            return Err(
                line.wrong("CONNECT: the out pins of the first splice are not the in pins of the second")
            );
        }
        for (number, parents) in &from.pins_out {
            let children = to.pins_in.get(number).cloned().unwrap_or_default();
            self.join(line, parents, &children)?;
        }
        Ok(())
    }

    /// `PARENT P... CHILD C...`
    pub(super) fn read_edges(&mut self, line: Line<'_>, words: Words<'_>) -> Parsed<()> {
        let (mut parents, mut children, mut behind) = (Vec::new(), Vec::new(), false);
        for word in words {
            if word.eq_ignore_ascii_case("CHILD") && !behind {
                behind = true;
                continue;
            }
            let splice = self.scope().splices.get(word);
            let found = match splice {
                Some(splice) if behind => splice.first.clone(),
                Some(splice) => splice.last.clone(),
                None => vec![self.find(line, word)?],
            };
            if behind { &mut children } else { &mut parents }.extend(found);
        }
        if !behind {
            return Err(line.wrong("Expected CHILD token"));
        }
        if parents.is_empty() || children.is_empty() {
            return Err(line.wrong("PARENT and CHILD both need at least one node"));
        }
        self.join(line, &parents, &children)
    }

    /// Every parent before every child. Between several and several a node is put that does nothing.
    fn join(&mut self, line: Line<'_>, parents: &[NodeId], children: &[NodeId]) -> Parsed<()> {
        let wrong = |parent: NodeId, what: &str| {
            ParseError(format!(
                "ERROR: {} (line {}) failed to add dependencies between parent node \"{}\" and child nodes : {what}",
                line.file,
                line.number,
                self.dag.node(parent).name
            ))
        };
        let word = |id: NodeId| match self.dag.node(id).kind {
            NodeKind::Final => Some("Final"),
            NodeKind::Service => Some("Service"),
            _ => None,
        };
        if let Some(word) = children.iter().find_map(|c| word(*c)) {
            return Err(wrong(parents[0], &format!("Tried to add a parent to a {word} node")));
        }
        if let Some((parent, word)) = parents.iter().find_map(|p| Some((*p, word(*p)?))) {
            return Err(wrong(parent, &format!("Tried to add a child to a {word} node")));
        }
        if parents.len() == 1 || children.len() == 1 {
            for parent in parents {
                for child in children {
                    self.add_edge(line, *parent, *child)?;
                }
            }
            return Ok(());
        }
        self.joins += 1;
        let name = format!("_condor_join_node{}", self.joins);
        if self.dag.by_name.contains_key(&name) {
            return Err(line.wrong(&format!("node name '{name}' already exists in DAG")));
        }
        let mut node = Node::new(name, NodeKind::Join, Submit::Inline(String::new()));
        node.noop = true;
        let join = self.push(node);
        for parent in parents {
            self.add_edge(line, *parent, join)?;
        }
        for child in children {
            self.add_edge(line, join, *child)?;
        }
        Ok(())
    }

    /// The same edge twice does no harm, as it is counted and taken off twice; for nodes with few parents it is kept once.
    fn add_edge(&mut self, line: Line<'_>, parent: NodeId, child: NodeId) -> Parsed<()> {
        let known = &self.dag.nodes[child.index()].parents;
        if known.len() <= 64 && known.contains(&parent) {
            return Ok(());
        }
        self.edges += 1;
        if self.edges > EDGES {
            return Err(line.wrong(&format!("a DAG has at most {EDGES} edges")));
        }
        self.dag.nodes[parent.index()].children.push(child);
        self.dag.nodes[child.index()].parents.push(parent);
        Ok(())
    }

    /// `SCRIPT [DEFER CODE SECONDS] [DEBUG FILE STREAM] PRE|POST|HOLD NODE EXE ARGS...`
    pub(super) fn read_script(&mut self, line: Line<'_>, mut words: Words<'_>) -> Parsed<()> {
        let (mut defer, mut debug) = (None, None);
        loop {
            let Some(word) = words.next() else {
                return Err(line.wrong("expected PRE, POST or HOLD behind SCRIPT"));
            };
            let word = word.to_ascii_uppercase();
            match word.as_str() {
                "DEFER" => {
                    let code = words::number(line, words.next(), "DEFER needs an exit code")?;
                    let seconds = words::number(line, words.next(), "DEFER needs a number of seconds")?;
                    let seconds =
                        u64::try_from(seconds).map_err(|_| line.wrong("DEFER needs seconds from 0"))?;
                    defer = Some((code, seconds));
                }
                "DEBUG" => {
                    let Some(file) = words.next() else { return Err(line.wrong("DEBUG needs a file")) };
                    let stream = match words.next().unwrap_or_default().to_ascii_uppercase().as_str() {
                        "STDOUT" => DebugStream::Stdout,
                        "STDERR" => DebugStream::Stderr,
                        "ALL" => DebugStream::All,
                        _ => return Err(line.wrong("DEBUG needs STDOUT, STDERR or ALL behind its file")),
                    };
                    debug = Some((file.to_owned(), stream));
                }
                "PRE" | "POST" | "HOLD" => {
                    let Some(name) = words.next() else { return Err(line.wrong("SCRIPT needs a node")) };
                    let nodes = self.find_all(line, name)?;
                    let argv: Vec<String> = words.map(str::to_owned).collect();
                    if argv.is_empty() {
                        return Err(line.wrong("SCRIPT needs a program"));
                    }
                    let script = Script { words: argv, defer, debug };
                    for id in nodes {
                        let node = &mut self.dag.nodes[id.index()];
                        let place = match word.as_str() {
                            "PRE" => &mut node.pre,
                            "POST" => &mut node.post,
                            _ => &mut node.hold,
                        };
                        *place = Some(script.clone());
                    }
                    return Ok(());
                }
                _ => return Err(line.wrong(&format!("expected PRE, POST or HOLD, found {word}"))),
            }
        }
    }
}
