//! What a function may return instead of what it is for.

use syn::{GenericArgument, PathArguments, ReturnType, Type};

/// Values of a return type, as expressions; an empty one for `()`. A value that does not fit is found by the compiler.
pub(crate) fn values_of(returned: &ReturnType) -> Vec<String> {
    match returned {
        ReturnType::Default => vec![String::new()],
        ReturnType::Type(_, of) => values(of),
    }
}

fn values(of: &Type) -> Vec<String> {
    let texts = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    match of {
        Type::Tuple(tuple) if tuple.elems.is_empty() => texts(&["()"]),
        Type::Tuple(tuple) => {
            let firsts: Option<Vec<String>> = tuple.elems.iter().map(first).collect();
            firsts.map(|firsts| format!("({},)", firsts.join(", "))).into_iter().collect()
        }
        Type::Reference(reference) => match &*reference.elem {
            Type::Path(path) if reference.mutability.is_none() && path.path.is_ident("str") => {
                texts(&["\"\"", "\"xyzzy\""])
            }
            Type::Slice(_) => texts(&["Default::default()"]),
            _ => Vec::new(),
        },
        Type::Path(path) => named(path),
        _ => Vec::new(),
    }
}

fn named(path: &syn::TypePath) -> Vec<String> {
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let inner: Vec<&Type> = match &last.arguments {
        PathArguments::AngleBracketed(list) => list
            .args
            .iter()
            .filter_map(|argument| match argument {
                GenericArgument::Type(of) => Some(of),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    let texts = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    match (last.ident.to_string().as_str(), inner.first()) {
        ("bool", _) => texts(&["true", "false"]),
        (
            "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128" | "isize",
            _,
        ) => texts(&["0", "1"]),
        ("f32" | "f64", _) => texts(&["0.0", "1.0"]),
        ("String", _) => texts(&["String::new()", "\"xyzzy\".to_owned()"]),
        ("Option", Some(some)) => {
            let some = first(some).map(|value| format!("Some({value})"));
            ["None".to_owned()].into_iter().chain(some).collect()
        }
        ("Result", Some(good)) => values(good).into_iter().map(|value| format!("Ok({value})")).collect(),
        ("Vec", Some(element)) => {
            let element = first(element).map(|value| format!("vec![{value}]"));
            ["vec![]".to_owned()].into_iter().chain(element).collect()
        }
        ("Self", _) => Vec::new(),
        _ => texts(&["Default::default()"]),
    }
}

fn first(of: &Type) -> Option<String> {
    values(of).into_iter().next()
}
