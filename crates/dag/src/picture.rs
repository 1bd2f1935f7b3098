//! A DAG for people's eyes: a tree of names, and an SVG.

use std::collections::VecDeque;

use crate::graph::{Dag, NodeId};

const WIDTH: usize = 120;
const HEIGHT: usize = 30;
const GAP: usize = 30;

/// Most nodes that a picture shows.
pub const SHOWN: usize = 2_000;

/// Nodes below those they wait for; a node that was shown before is named again without what is below it.
pub fn tree(dag: &Dag, status: impl Fn(NodeId) -> String) -> String {
    let mut text = String::new();
    let mut seen = vec![false; dag.nodes.len()];
    let mut shown = 0;
    let roots = dag.iter().filter(|(_, n)| n.parents.is_empty()).map(|(id, _)| id);
    let mut waiting: Vec<(NodeId, usize)> =
        roots.collect::<Vec<_>>().into_iter().rev().map(|id| (id, 0)).collect();
    while let Some((id, depth)) = waiting.pop() {
        shown += 1;
        if shown > SHOWN {
            text.push_str(&format!("... {} nodes in all\n", dag.nodes.len()));
            break;
        }
        let node = dag.node(id);
        let again = std::mem::replace(&mut seen[id.index()], true);
        let mark = if again && !node.children.is_empty() { " (above)" } else { "" };
        text.push_str(&format!("{}{} {}{mark}\n", "  ".repeat(depth), node.name, status(id)));
        if !again {
            waiting.extend(node.children.iter().rev().map(|child| (*child, depth + 1)));
        }
    }
    text
}

/// Nodes in rows, each below all that it waits for. `colour` is that of a node.
pub fn svg(dag: &Dag, colour: impl Fn(NodeId) -> &'static str) -> String {
    let rows = rows(dag);
    let widest = rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut place = vec![(0, 0); dag.nodes.len()];
    for (y, row) in rows.iter().enumerate() {
        let indent = (widest - row.len()) * (WIDTH + GAP) / 2;
        for (x, id) in row.iter().enumerate() {
            place[id.index()] = (GAP + indent + x * (WIDTH + GAP), GAP + y * (HEIGHT + GAP));
        }
    }
    let (width, height) = (widest * (WIDTH + GAP) + GAP, rows.len().max(1) * (HEIGHT + GAP) + GAP);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    let placed: Vec<NodeId> = rows.iter().flatten().copied().collect();
    for id in &placed {
        let (x, y) = place[id.index()];
        for child in &dag.node(*id).children {
            let (cx, cy) = place[child.index()];
            text.push_str(&format!(
                "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{cy}\" stroke=\"#888\"/>\n",
                x + WIDTH / 2,
                y + HEIGHT,
                cx + WIDTH / 2
            ));
        }
    }
    for id in &placed {
        let (x, y) = place[id.index()];
        text.push_str(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"{}\" stroke=\"#333\"/>\n<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            colour(*id),
            x + WIDTH / 2,
            y + HEIGHT / 2 + 4,
            escape(&dag.node(*id).name)
        ));
    }
    text.push_str("</svg>\n");
    text
}

/// Each node in the row behind the last of its parents; what is in a cycle is left out.
fn rows(dag: &Dag) -> Vec<Vec<NodeId>> {
    let mut waits: Vec<usize> = dag.nodes.iter().map(|n| n.parents.len()).collect();
    let mut level = vec![0; dag.nodes.len()];
    let mut free: VecDeque<NodeId> =
        dag.iter().filter(|(_, n)| n.parents.is_empty()).map(|(id, _)| id).collect();
    let mut rows: Vec<Vec<NodeId>> = Vec::new();
    while let Some(id) = free.pop_front() {
        let at = level[id.index()];
        if rows.len() <= at {
            rows.resize(at + 1, Vec::new());
        }
        rows[at].push(id);
        for child in &dag.node(id).children {
            level[child.index()] = level[child.index()].max(at + 1);
            waits[child.index()] -= 1;
            if waits[child.index()] == 0 {
                free.push_back(*child);
            }
        }
    }
    rows
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
