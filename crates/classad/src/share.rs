//! Expressions with the same text share one tree, and short strings with the same bytes one allocation. A pool has thousands of machines with the same policy; one
//! copy of it stays in the processor's cache, ten thousand do not. The table is bounded and only an
//! optimisation: nothing depends on two expressions being shared.

use crate::expr::{Expr, Repr};
use crate::lex::Quoting;
use crate::text::Str;
use crate::value::Value;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{LazyLock, Mutex, PoisonError, RwLock};

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

/// Places for short strings; one that hashes to the place of another replaces it.
const POOL: usize = 2048;
/// Longest string that is pooled, in bytes.
const LONGEST_POOLED: usize = 32;

#[expect(
    clippy::disallowed_methods,
    reason = "nobody outside can tell; keeps strangers from choosing texts that collide"
)]
static STRINGS: LazyLock<(RandomState, Mutex<Vec<Option<Str>>>)> =
    LazyLock::new(|| (RandomState::new(), Mutex::new(vec![None; POOL])));

/// Lets a literal string share its bytes with an equal one seen lately: machines have few values of `Arch`.
pub(crate) fn pool(expr: &mut Expr) {
    let Repr::Lit(Value::Str(string)) = &mut expr.0 else { return };
    if string.as_bytes().len() > LONGEST_POOLED {
        return;
    }
    let (hasher, pool) = &*STRINGS;
    let place = hasher.hash_one(string.as_bytes()) as usize % POOL;
    let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
    match &pool[place] {
        Some(known) if known == string => *string = known.clone(),
        _ => pool[place] = Some(string.clone()),
    }
}
