//! Several queue statements, one cluster: proc numbers run on, so that `out.$(Process)` never names a file twice.

use model::limits;
use model::template::{Attribute, Column, JobTemplate, Piece, PieceKind, Varying};

/// Most jobs in a cluster that several statements make together; each of them needs its own row.
pub(crate) const MERGED_JOBS: u64 = 2_000_000;

/// One template for all; attributes that are written alike stay as they are, others become columns.
pub(crate) fn merge(mut templates: Vec<JobTemplate>) -> Result<JobTemplate, String> {
    if templates.len() <= 1 {
        return templates.pop().ok_or_else(|| "there is nothing to queue".to_owned());
    }
    let total: u64 = templates.iter().map(|t| u64::from(t.procs)).sum();
    if total > MERGED_JOBS {
        return Err(format!(
            "several queue statements together make {total} jobs; at most {MERGED_JOBS} can share a cluster \
             (a single statement may make {})",
            limits::PROCS_PER_CLUSTER
        ));
    }
    let mut names: Vec<String> = Vec::new();
    for name in templates.iter().flat_map(names_of) {
        if !names.iter().any(|n| n.eq_ignore_ascii_case(name)) {
            names.push(name.to_owned());
        }
    }
    let mut merged = JobTemplate { procs: total as u32, per_row: 1, ..JobTemplate::default() };
    for name in names {
        let forms: Vec<Form> = templates.iter().map(|t| Form::of(t, &name)).collect();
        match &forms[0] {
            Form::Shared(text) if forms.iter().all(|f| matches!(f, Form::Shared(other) if other == text)) => {
                merged.shared.push(Attribute { name, expr: text.clone() });
            }
            Form::Counted(pieces)
                if forms.iter().all(|f| matches!(f, Form::Counted(other) if other == pieces)) =>
            {
                merged.varying.push(Varying { name, pieces: pieces.clone() });
            }
            _ => spread(&templates, name, &mut merged)?,
        }
    }
    Ok(merged)
}

fn names_of(template: &JobTemplate) -> impl Iterator<Item = &str> {
    template.shared.iter().map(|a| a.name.as_str()).chain(template.varying.iter().map(|v| v.name.as_str()))
}

/// How one template has one attribute.
enum Form {
    Absent,
    Shared(String),
    /// Depends on cluster and proc numbers only, which mean the same in every statement.
    Counted(Vec<Piece>),
    Other,
}

impl Form {
    fn of(template: &JobTemplate, name: &str) -> Self {
        if let Some(text) = template.shared(name) {
            return Self::Shared(text.to_owned());
        }
        match template.varying.iter().find(|v| v.name.eq_ignore_ascii_case(name)) {
            None => Self::Absent,
            Some(v) => {
                let counted = v.pieces.iter().all(|p| {
                    matches!(p.kind, Some(PieceKind::Text(_) | PieceKind::Cluster(_) | PieceKind::Proc(_)))
                });
                if counted { Self::Counted(v.pieces.clone()) } else { Self::Other }
            }
        }
    }
}

/// One complete value per job, cut at the cluster id.
fn spread(templates: &[JobTemplate], name: String, merged: &mut JobTemplate) -> Result<(), String> {
    let mut columns: Vec<Column> = Vec::new();
    let mut first = 0u32;
    for template in templates {
        let pieces: Vec<PieceKind> = match template.shared(&name) {
            Some(text) => vec![PieceKind::Text(text.to_owned())],
            None => match template.varying.iter().find(|v| v.name.eq_ignore_ascii_case(&name)) {
                Some(varying) => varying.pieces.iter().filter_map(|p| p.kind.clone()).collect(),
                None => vec![PieceKind::Text("undefined".into())],
            },
        };
        let per_row = template.per_row.max(1);
        for job in 0..template.procs {
            let mut cuts = vec![String::new()];
            for piece in &pieces {
                let last = cuts.len() - 1;
                match piece {
                    PieceKind::Text(text) => cuts[last].push_str(text),
                    PieceKind::Cluster(_) => cuts.push(String::new()),
                    PieceKind::Proc(_) => cuts[last].push_str(&(first + job).to_string()),
                    PieceKind::Step(_) => cuts[last].push_str(&(job % per_row).to_string()),
                    PieceKind::Row(_) => cuts[last].push_str(&(job / per_row).to_string()),
                    PieceKind::Column(index) => {
                        let column = template.columns.get(*index as usize);
                        cuts[last].push_str(column.map_or("", |c| c.get((job / per_row) as usize)));
                    }
                }
            }
            if columns.is_empty() {
                columns.resize_with(cuts.len(), Column::default);
            }
            if cuts.len() != columns.len() {
                return Err(format!(
                    "{name} holds the cluster id in some jobs only, which one cluster cannot express"
                ));
            }
            for (column, cut) in columns.iter_mut().zip(&cuts) {
                if column.text.len() + cut.len() > limits::SUBMIT_BYTES {
                    return Err(format!("the values of {name} are over {} MiB", limits::SUBMIT_BYTES >> 20));
                }
                column.push(cut);
            }
        }
        first += template.procs;
    }
    let mut pieces = Vec::new();
    for (i, column) in columns.into_iter().enumerate() {
        if i > 0 {
            pieces.push(Piece { kind: Some(PieceKind::Cluster(true)) });
        }
        merged.columns.push(column);
        pieces.push(Piece { kind: Some(PieceKind::Column(merged.columns.len() as u32 - 1)) });
    }
    merged.varying.push(Varying { name, pieces });
    Ok(())
}
