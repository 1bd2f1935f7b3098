//! Every bound that protects the language against hostile input, in one place.
//!
//! The first three are part of the language as HTCondor speaks it; the others are ours, and so is what a pool spends. Nothing here is
//! tunable at run time: a policy that needs more than this is not a policy.

/// Parser nesting guard: brackets cost three, prefix operators, ternaries and elvis one each.
pub const PARSE_DEPTH: u32 = 500;
/// Evaluation depth: operators, parentheses and attribute hops cost one each.
pub const EVAL_DEPTH: u32 = 400;
/// Node evaluations one evaluation may spend, as the language has it.
pub const LANGUAGE_STEPS: u64 = 10_000_000;
/// Node evaluations that a pool spends on one evaluation: ads of strangers are evaluated by the thousand, and everybody waits.
pub const EVAL_STEPS: u64 = 20_000;
/// Node evaluations that a fact about a machine or a job is worth: plain values, and what is put together from a few.
pub const FACT_STEPS: u64 = 200;
/// Bytes that a fact may create.
pub const FACT_BYTES: usize = 64 << 10;
/// Bytes that are read, compared or put in order for one step.
pub const BYTES_PER_STEP: usize = 16;
/// Bytes that are merely copied for one step.
pub const COPIED_PER_STEP: usize = 64;
/// Function calls that may be open at once; the language itself does not count them, the stack does.
pub const CALL_DEPTH: u32 = 200;
/// Bytes of strings, lists and scopes one evaluation may create, where it has the whole budget.
pub const LANGUAGE_BYTES: usize = 64 << 20;
/// Bytes that one evaluation may create in a pool.
pub const EVAL_BYTES: usize = 4 << 20;
/// Longest source text of one expression or ad, in bytes.
pub const SOURCE_BYTES: usize = 16 << 20;
/// Most attributes in one ad.
pub const AD_ATTRIBUTES: usize = 65_000;
/// Distinct names that are shared; further ones still work but own their text.
pub const INTERNED_NAMES: usize = 65_536;
/// Longest name that is shared through the interner, in bytes.
pub const INTERNED_NAME_BYTES: usize = 128;
/// Compiled size of one regular expression, in bytes.
pub const REGEX_BYTES: usize = 1 << 20;
/// Longest regular expression, in bytes.
pub const REGEX_PATTERN_BYTES: usize = 16 << 10;
/// Depth to which flattening descends before it leaves an expression as it is.
pub const FLATTEN_DEPTH: u32 = 200;
/// Nesting of JSON and XML documents.
pub const DOCUMENT_DEPTH: u32 = 150;
