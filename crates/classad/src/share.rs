//! Expressions with the same text share one tree. A pool has thousands of machines with the same policy; one
//! copy of it stays in the processor's cache, ten thousand do not. The table is bounded and only an
//! optimisation: nothing depends on two expressions being shared.

use crate::expr::{Expr, Repr};
use crate::lex::Quoting;
use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

/// Texts kept; when there are more, the table starts over.
const MOST: usize = 4096;
/// Longest text kept, in bytes.
const LONGEST: usize = 2048;

type Table = HashMap<Box<str>, Expr>;
static NEW: LazyLock<RwLock<Table>> = LazyLock::new(RwLock::default);
static OLD: LazyLock<RwLock<Table>> = LazyLock::new(RwLock::default);

fn table(quoting: Quoting) -> &'static RwLock<Table> {
    match quoting {
        Quoting::New => &NEW,
        Quoting::Old => &OLD,
    }
}

/// The shared tree for an expression just parsed from a text.
pub(crate) fn shared(text: &str, quoting: Quoting, expr: Expr) -> Expr {
    if matches!(expr.0, Repr::Lit(_)) || text.len() > LONGEST {
        return expr;
    }
    let table = table(quoting);
    if let Some(known) = table.read().unwrap_or_else(PoisonError::into_inner).get(text) {
        return known.clone();
    }
    let mut table = table.write().unwrap_or_else(PoisonError::into_inner);
    if table.len() >= MOST {
        table.clear();
    }
    table.insert(text.into(), expr.clone());
    expr
}
