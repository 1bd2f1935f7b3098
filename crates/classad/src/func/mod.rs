//! Built-in functions: the table of names, and what the functions share. Each family has its own file.

mod args;
mod lists;
mod math;
mod meta;
mod regexes;
mod stringlists;
mod strings;
mod times;
mod types;
mod versions;
#[cfg(test)]
mod weight;

use crate::eval::{Eval, Failed, State};
use crate::expr::Expr;
use crate::limits;
use crate::number;
use crate::print;
use crate::time;
use crate::value::{FrameId, List, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

macro_rules! functions {
    ($($variant:ident = $($name:literal)|+,)*) => {
        /// The built-in functions.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Func { $($variant,)* }

        /// Every name a built-in function goes by, in its usual spelling.
        pub(crate) const NAMES: &[(&str, Func)] = &[$($(($name, Func::$variant),)+)*];
    };
}

functions! {
    IsUndefined = "isUndefined", IsError = "isError", IsString = "isString", IsInteger = "isInteger",
    IsReal = "isReal", IsBoolean = "isBoolean", IsList = "isList", IsClassAd = "isClassAd",
    IsAbsTime = "isAbsTime", IsRelTime = "isRelTime",
    Member = "member", IdenticalMember = "identicalMember", Size = "size", Sum = "sum", Avg = "avg",
    Min = "min", Max = "max", AnyCompare = "anyCompare", AllCompare = "allCompare",
    Int = "int", Real = "real", String = "string", Bool = "bool", AbsTime = "absTime", RelTime = "relTime",
    Floor = "floor", Ceiling = "ceiling" | "ceil", Round = "round", Pow = "pow", Quantize = "quantize",
    Random = "random", IfThenElse = "ifThenElse",
    Strcat = "strcat", Join = "join", ToUpper = "toUpper", ToLower = "toLower", Substr = "substr",
    Strcmp = "strcmp", Stricmp = "stricmp",
    VersionCmp = "versioncmp", VersionLt = "versionLT", VersionLe = "versionLE", VersionEq = "versionEQ",
    VersionGe = "versionGE", VersionGt = "versionGT", VersionInRange = "version_in_range",
    Split = "split", SplitUserName = "splitUserName", SplitSlotName = "splitSlotName",
    Regexp = "regexp", RegexpMember = "regexpMember", Regexps = "regexps",
    Replace = "replace", ReplaceAll = "replaceAll",
    Eval = "eval", Unparse = "unparse", Unresolved = "unresolved", Debug = "debug",
    Time = "time", CurrentTime = "currentTime", DayTime = "dayTime", TimezoneOffset = "timezoneOffset",
    GetYear = "getYear", GetMonth = "getMonth", GetDayOfMonth = "getDayOfMonth",
    GetDayOfWeek = "getDayOfWeek", GetDayOfYear = "getDayOfYear", GetDays = "getDays",
    GetHours = "getHours", GetMinutes = "getMinutes", GetSeconds = "getSeconds",
    SplitTime = "splitTime", FormatTime = "formatTime", Interval = "interval",
    StringListSize = "stringListSize", StringListSum = "stringListSum", StringListAvg = "stringListAvg",
    StringListMin = "stringListMin", StringListMax = "stringListMax",
    StringListMember = "stringListMember", StringListIMember = "stringListIMember",
    StringListSubsetMatch = "stringListSubsetMatch", StringListISubsetMatch = "stringListISubsetMatch",
    StringListsIntersect = "stringListsIntersect", StringListRegexpMember = "stringList_regexpMember",
    UserHome = "userHome", UserMap = "userMap",
    EnvV1ToV2 = "envV1ToV2", MergeEnvironment = "mergeEnvironment",
    ArgsToList = "argsToList", ListToArgs = "listToArgs",
    EvalInEachContext = "evalInEachContext", CountMatches = "countMatches",
}

static BY_NAME: LazyLock<HashMap<String, Func>> =
    LazyLock::new(|| NAMES.iter().map(|(name, func)| (name.to_ascii_lowercase(), *func)).collect());

impl Func {
    pub(crate) fn named(name: &str) -> Option<Func> {
        BY_NAME.get(name.to_ascii_lowercase().as_str()).copied()
    }

    /// True if attributes count that are not among the names in the arguments: those in texts, or in ads that are
    /// searched or printed whole.
    pub(crate) fn looks_at_more_than_its_arguments(self) -> bool {
        matches!(
            self,
            Func::Eval | Func::Unparse | Func::Unresolved | Func::EvalInEachContext | Func::CountMatches
        )
    }

    /// True if the result depends only on the values of the arguments.
    pub(crate) fn is_pure(self) -> bool {
        !matches!(
            self,
            Func::Random
                | Func::Eval
                | Func::Unparse
                | Func::Unresolved
                | Func::Time
                | Func::CurrentTime
                | Func::DayTime
                | Func::TimezoneOffset
                | Func::UserHome
                | Func::UserMap
                | Func::EvalInEachContext
                | Func::CountMatches
                | Func::AbsTime
                | Func::FormatTime
                | Func::SplitTime
        )
    }
}

/// Evaluates a call. Arguments arrive unevaluated: some functions are lazy, some look at the expression.
pub(crate) fn call(state: &mut State<'_>, func: Func, args: &[Expr], cur: FrameId) -> Eval {
    // Arguments that are plain values cost nothing to evaluate, but they are there.
    state.spend(args.len() / 4)?;
    let cx = &mut Cx { state, args, cur };
    match func {
        Func::IsUndefined
        | Func::IsError
        | Func::IsString
        | Func::IsInteger
        | Func::IsReal
        | Func::IsBoolean
        | Func::IsList
        | Func::IsClassAd
        | Func::IsAbsTime
        | Func::IsRelTime => types::is_kind(cx, func),
        Func::Int | Func::Real | Func::String | Func::Bool => types::convert(cx, func),
        Func::IfThenElse => types::if_then_else(cx),
        Func::Member | Func::IdenticalMember => lists::member(cx, func),
        Func::Size => lists::size(cx),
        Func::Sum | Func::Avg | Func::Min | Func::Max => lists::fold(cx, func),
        Func::AnyCompare | Func::AllCompare => lists::compare(cx, func),
        Func::EvalInEachContext | Func::CountMatches => lists::in_each_context(cx, func),
        Func::Floor | Func::Ceiling | Func::Round => math::rounded(cx, func),
        Func::Pow => math::pow(cx),
        Func::Quantize => math::quantize(cx),
        Func::Random => math::random(cx),
        Func::Strcat => strings::strcat(cx),
        Func::Join => strings::join(cx),
        Func::ToUpper | Func::ToLower => strings::change_case(cx, func),
        Func::Substr => strings::substr(cx),
        Func::Strcmp | Func::Stricmp => strings::compare(cx, func),
        Func::Split => strings::split(cx),
        Func::SplitUserName | Func::SplitSlotName => strings::split_at_sign(cx, func),
        Func::VersionCmp
        | Func::VersionLt
        | Func::VersionLe
        | Func::VersionEq
        | Func::VersionGe
        | Func::VersionGt => versions::compare(cx, func),
        Func::VersionInRange => versions::in_range(cx),
        Func::Regexp => regexes::regexp(cx),
        Func::RegexpMember => regexes::member(cx),
        Func::Regexps | Func::Replace | Func::ReplaceAll => regexes::substitute(cx, func),
        Func::StringListRegexpMember => regexes::string_list_member(cx),
        Func::Eval => meta::eval(cx),
        Func::Unparse => meta::unparse(cx),
        Func::Unresolved => meta::unresolved(cx),
        Func::Debug => meta::debug(cx),
        Func::UserHome => meta::user_home(cx),
        Func::UserMap => meta::user_map(cx),
        Func::AbsTime => times::abs_time(cx),
        Func::RelTime => times::rel_time(cx),
        Func::Time | Func::CurrentTime | Func::DayTime | Func::TimezoneOffset => Ok(times::clock(cx, func)),
        Func::GetYear | Func::GetMonth | Func::GetDayOfMonth | Func::GetDayOfWeek | Func::GetDayOfYear => {
            times::calendar_part(cx, func)
        }
        Func::GetDays | Func::GetHours | Func::GetMinutes | Func::GetSeconds => times::clock_part(cx, func),
        Func::SplitTime => times::split_time(cx),
        Func::FormatTime => times::format_time(cx),
        Func::Interval => times::interval(cx),
        Func::StringListSize => stringlists::size(cx),
        Func::StringListSum | Func::StringListAvg | Func::StringListMin | Func::StringListMax => {
            stringlists::fold(cx, func)
        }
        Func::StringListMember | Func::StringListIMember => stringlists::member(cx, func),
        Func::StringListSubsetMatch | Func::StringListISubsetMatch => stringlists::subset(cx, func),
        Func::StringListsIntersect => stringlists::intersect(cx),
        Func::EnvV1ToV2 => args::env_v1_to_v2(cx),
        Func::MergeEnvironment => args::merge_environment(cx),
        Func::ArgsToList => args::args_to_list(cx),
        Func::ListToArgs => args::list_to_args(cx),
    }
}

/// One call: its arguments and where they are evaluated.
pub(crate) struct Cx<'s, 'a> {
    pub(crate) state: &'s mut State<'a>,
    pub(crate) args: &'s [Expr],
    pub(crate) cur: FrameId,
}

impl Cx<'_, '_> {
    fn count(&self) -> usize {
        self.args.len()
    }

    fn arg(&mut self, at: usize) -> Eval {
        match self.args.get(at) {
            Some(arg) => self.state.eval(arg, self.cur),
            None => Ok(Value::Undefined),
        }
    }

    /// The items of a list. Functions evaluate them where the call stands, not where the list does; only
    /// subscripts respect the place of the list.
    fn items(&mut self, list: &List) -> Result<Vec<Value>, Failed> {
        self.state.charge(list.items.len() * size_of::<Value>())?;
        self.state.spend(list.items.len())?;
        list.items.iter().map(|item| self.state.eval(item, self.cur)).collect()
    }

    /// A string result, accounted for.
    fn string(&mut self, bytes: Vec<u8>) -> Eval {
        self.state.charge(bytes.len())?;
        Ok(Value::Str(bytes.into()))
    }

    /// The text of a value, accounted for; undefined and error stay what they are.
    fn text(&mut self, value: &Value) -> Result<Result<Vec<u8>, Value>, Failed> {
        Ok(Ok(match value {
            Value::Undefined => return Ok(Err(Value::Undefined)),
            Value::Error => return Ok(Err(Value::Error)),
            Value::Str(s) => {
                self.state.spend(s.as_bytes().len() / limits::COPIED_PER_STEP)?;
                s.as_bytes().to_vec()
            }
            Value::AbsTime(t) => {
                let mut out = String::new();
                time::format_abs(*t, &mut out);
                out.into_bytes()
            }
            Value::RelTime(secs) => {
                let mut out = String::new();
                time::format_rel(secs.trunc(), &mut out);
                out.into_bytes()
            }
            other => self.state.print(|most| print::new_value_within(other, most))?.into_bytes(),
        }))
    }

    /// The number in a value, accounted for; None where there is none.
    fn real(&mut self, value: &Value) -> Result<Option<f64>, Failed> {
        if let Value::Str(text) = value {
            self.state.touch(text.as_bytes().len())?;
        }
        Ok(to_real(value))
    }

    /// A list result, accounted for.
    fn list(&mut self, values: Vec<Value>) -> Eval {
        self.state.spend(values.len())?;
        self.state.charge(values.len() * size_of::<Expr>())?;
        let items = values.into_iter().map(|value| Expr(crate::expr::Repr::Lit(value))).collect();
        Ok(Value::List(List { items, frame: FrameId::NONE }))
    }
}

/// The number in a value; None where there is none.
fn to_real(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(b) => Some(f64::from(u8::from(*b))),
        Value::Int(i) => Some(*i as f64),
        Value::Real(r) => Some(*r),
        Value::Str(s) => number::strtod(s.as_bytes()).map(|(value, _)| value),
        Value::AbsTime(t) => Some(t.secs as f64),
        Value::RelTime(secs) => Some(secs.trunc()),
        _ => None,
    }
}

/// Which bytes are separators: looked up once for each byte of a text, however many separators there are.
struct Separators([bool; 256]);

impl Separators {
    fn of(bytes: &[u8]) -> Separators {
        let mut set = [false; 256];
        for byte in bytes {
            set[usize::from(*byte)] = true;
        }
        Separators(set)
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte)]
    }
}

/// The whole number in a value.
fn to_int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(i) => Some(*i),
        other => to_real(other).map(real_to_int),
    }
}

/// C's conversion on the machines the vectors come from: out of range and NaN become the smallest integer.
fn real_to_int(value: f64) -> i64 {
    const LIMIT: f64 = i64::MAX as f64;
    if (-LIMIT..LIMIT).contains(&value) { value as i64 } else { i64::MIN }
}
