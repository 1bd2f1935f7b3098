//! Which changes can be made to a source file: every place is found in the parsed file and named by its bytes.
//!
//! What is left out: constants and everything else that is computed when compiling, patterns, code for tests, what macros are
//! given, and how things are printed for people (`Display`, `Debug`).

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Lit, UnOp};

use super::values::values_of;

/// A place where something can be changed, and what can be put there.
#[derive(Debug)]
pub(crate) struct Place {
    /// The bytes of the file that the place covers; for an insertion both ends are the same.
    pub(crate) bytes: Range<usize>,
    pub(crate) line: usize,
    pub(crate) changes: Vec<Change>,
}

#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    /// For people: what was changed to what.
    pub(crate) words: String,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// This expression instead of the one that stands there.
    Instead(String),
    /// This statement at the beginning of a function.
    AtStart(String),
    /// The match arm is never taken; the place is where its guard would stand.
    NeverTaken,
}

/// Where modules of the file are, and the places in it.
pub(crate) struct Found {
    pub(crate) places: Vec<Place>,
    pub(crate) modules: Vec<Module>,
}

/// `mod name;` in a file, inside the modules `within` of that file.
pub(crate) struct Module {
    pub(crate) within: Vec<String>,
    pub(crate) name: String,
    pub(crate) path: Option<String>,
}

/// All places of a file.
pub(crate) fn find_places(text: &str) -> Result<Found, String> {
    let file = syn::parse_file(text).map_err(|e| format!("line {}: {e}", e.span().start().line))?;
    let mut finder = Finder { text, ..Finder::default() };
    finder.visit_file(&file);
    Ok(Found { places: finder.places, modules: finder.modules })
}

#[derive(Default)]
struct Finder<'t> {
    text: &'t str,
    places: Vec<Place>,
    modules: Vec<Module>,
    within: Vec<String>,
    /// The type or trait whose functions are looked at.
    owner: String,
}

/// Calls whose numbers only say how much to set aside.
const SIZES_ONLY: &[&str] = &["with_capacity", "reserve"];

impl Finder<'_> {
    fn source(&self, node: &impl Spanned) -> &str {
        &self.text[node.span().byte_range()]
    }

    fn add(&mut self, bytes: Range<usize>, line: usize, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.places.push(Place { bytes, line, changes });
        }
    }

    fn replace(&mut self, node: &Expr, changes: Vec<Change>) {
        let span = node.span();
        self.add(span.byte_range(), span.start().line, changes);
    }

    /// A function that returns at once.
    fn cut_short(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if block.stmts.is_empty() || signature.ident == "main" {
            return;
        }
        let body = match block.stmts.as_slice() {
            [syn::Stmt::Expr(only, None)] => self.source(only).to_owned(),
            _ => String::new(),
        };
        let name = if self.owner.is_empty() {
            signature.ident.to_string()
        } else {
            format!("{}::{}", self.owner, signature.ident)
        };
        let changes = values_of(&signature.output)
            .into_iter()
            .filter(|value| body != *value)
            .map(|value| Change {
                words: format!("{name} returns {} at once", if value.is_empty() { "()" } else { &value }),
                kind: Kind::AtStart(format!("return {value};")),
            })
            .collect();
        let open = block.brace_token.span.open();
        let end = open.byte_range().end;
        self.add(end..end, signature.ident.span().start().line, changes);
    }

    fn operator(&mut self, whole: &Expr, binary: &syn::ExprBinary) {
        let (left, right) = (self.source(&binary.left), self.source(&binary.right));
        let was = self.source(&binary.op).to_owned();
        let changes = others(&binary.op)
            .iter()
            .map(|op| Change {
                kind: Kind::Instead(format!("({left}) {op} ({right})")),
                words: format!("{was} to {op} in {}", shorten(self.source(whole))),
            })
            .collect();
        self.replace(whole, changes);
    }

    fn literal(&mut self, whole: &Expr, literal: &Lit) {
        let (was, other) = match literal {
            Lit::Bool(b) => (b.value.to_string(), (!b.value).to_string()),
            Lit::Int(n) => match n.base10_parse::<u128>() {
                Ok(value) => (n.to_string(), format!("{}{}", value.saturating_add(1), n.suffix())),
                Err(_) => return,
            },
            _ => return,
        };
        let words = format!("{was} to {other}");
        self.replace(whole, vec![Change { kind: Kind::Instead(other), words }]);
    }

    /// The operands of an operator: their own numbers are left alone, as the operator is changed.
    fn visit_operand(&mut self, operand: &Expr) {
        if !matches!(operand, Expr::Lit(_)) {
            self.visit_expr(operand);
        }
    }

    /// A condition that is a mere question, which no operator turns round.
    fn condition(&mut self, asked: &Expr) {
        if matches!(asked, Expr::Call(_) | Expr::MethodCall(_) | Expr::Path(_) | Expr::Field(_)) {
            let words = format!("{} to its opposite", shorten(self.source(asked)));
            let opposite = format!("!({})", self.source(asked));
            self.replace(asked, vec![Change { kind: Kind::Instead(opposite), words }]);
        }
    }

    fn arms(&mut self, arms: &[syn::Arm]) {
        let catch_all =
            arms.iter().rposition(|arm| arm.guard.is_none() && matches!(arm.pat, syn::Pat::Wild(_)));
        for (at, arm) in arms.iter().enumerate() {
            if is_for_tests(&arm.attrs) {
                continue;
            }
            let span = arm.pat.span();
            if let Some((_, guard)) = &arm.guard {
                let was = shorten(self.source(&**guard));
                let values = ["true", "false"].map(|value| Change {
                    kind: Kind::Instead(value.to_owned()),
                    words: format!("the guard {was} to {value}"),
                });
                // A guard that binds names is a chain with `let`, which stands only where it stands.
                if !has_let(guard) {
                    self.replace(guard, values.into());
                }
            } else if catch_all.is_some_and(|last| at < last) {
                let words = format!("the arm {} is never taken", shorten(self.source(&arm.pat)));
                let end = span.byte_range().end;
                self.add(end..end, span.start().line, vec![Change { kind: Kind::NeverTaken, words }]);
            }
            if let Some((_, guard)) = &arm.guard {
                self.visit_expr(guard);
            }
            self.visit_expr(&arm.body);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(item_attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let name = module.ident.to_string();
        let Some((_, items)) = &module.content else {
            let path = module.attrs.iter().find_map(path_attribute);
            self.modules.push(Module { within: self.within.clone(), name, path });
            return;
        };
        self.within.push(name);
        for item in items {
            self.visit_item(item);
        }
        self.within.pop();
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.sig.constness.is_none() {
            let owner = std::mem::take(&mut self.owner);
            self.cut_short(&function.sig, &function.block);
            self.visit_block(&function.block);
            self.owner = owner;
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let of = block.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if of.is_some_and(|t| ["Display", "Debug", "Default"].iter().any(|name| t.ident == name)) {
            return;
        }
        let name = shorten(self.source(&*block.self_ty));
        let owner = std::mem::replace(&mut self.owner, name);
        visit::visit_item_impl(self, block);
        self.owner = owner;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if function.sig.constness.is_none() && !is_for_tests(&function.attrs) {
            self.cut_short(&function.sig, &function.block);
            self.visit_block(&function.block);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let owner = std::mem::replace(&mut self.owner, item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.owner = owner;
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.cut_short(&function.sig, block);
            self.visit_block(block);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        // Of `Point { x }` nothing can be put in the place of x alone.
        if field.colon_token.is_some() && !is_for_tests(&field.attrs) {
            self.visit_expr(&field.expr);
        }
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::Binary(binary) => {
                if !has_let(expr) {
                    self.operator(expr, binary);
                }
                self.visit_operand(&binary.left);
                self.visit_operand(&binary.right);
            }
            Expr::Unary(unary) => {
                let inner = self.source(&*unary.expr);
                let change = match unary.op {
                    UnOp::Not(_) => Some("!"),
                    UnOp::Neg(_) => Some("-"),
                    _ => None,
                };
                let changes = change.map(|sign| Change {
                    kind: Kind::Instead(format!("({inner})")),
                    words: format!("{sign} taken off {}", shorten(inner)),
                });
                self.replace(expr, changes.into_iter().collect());
                self.visit_operand(&unary.expr);
            }
            Expr::Lit(literal) => self.literal(expr, &literal.lit),
            Expr::Macro(call) if call.mac.path.is_ident("matches") => {
                let was = self.source(expr);
                let words = format!("{} to its opposite", shorten(was));
                let opposite = format!("!{was}");
                self.replace(expr, vec![Change { kind: Kind::Instead(opposite), words }]);
            }
            Expr::If(branch) => {
                self.condition(&branch.cond);
                visit::visit_expr_if(self, branch);
            }
            Expr::While(turn) => {
                self.condition(&turn.cond);
                visit::visit_expr_while(self, turn);
            }
            Expr::Match(branch) => {
                self.visit_expr(&branch.expr);
                self.arms(&branch.arms);
            }
            Expr::Index(index) => {
                self.visit_expr(&index.expr);
                self.visit_operand(&index.index);
            }
            Expr::Range(range) => {
                for end in [&range.start, &range.end].into_iter().flatten() {
                    self.visit_operand(end);
                }
            }
            Expr::MethodCall(call) if SIZES_ONLY.iter().any(|name| call.method == name) => {
                self.visit_expr(&call.receiver);
            }
            Expr::Call(call) if SIZES_ONLY.iter().any(|name| self.source(&*call.func).ends_with(name)) => {}
            Expr::Cast(cast) => self.visit_operand(&cast.expr),
            Expr::Repeat(repeat) => self.visit_operand(&repeat.expr),
            Expr::Const(_) => {}
            _ => visit::visit_expr(self, expr),
        }
    }

    // What is computed when compiling, and what is no expression.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}

/// What may stand in place of an operator.
fn others(op: &BinOp) -> &'static [&'static str] {
    match op {
        BinOp::Lt(_) => &["<=", ">"],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<"],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) | BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["*", "%"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) | BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::DivAssign(_) => &["*=", "%="],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        _ => &[],
    }
}

/// A chain of conditions with `let` in it, which must stay as it stands.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Compiled for tests only, or for everything but tests.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let Ok(list) = attribute.meta.require_list() else { return path.is_ident("test") };
        path.is_ident("cfg")
            && list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
    })
}

/// The file that `#[path = "..."]` names.
fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let pair = attribute.meta.require_name_value().ok()?;
    match &pair.value {
        Expr::Lit(syn::ExprLit { lit: Lit::Str(path), .. }) if pair.path.is_ident("path") => {
            Some(path.value())
        }
        _ => None,
    }
}

fn item_attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        _ => &[],
    }
}

/// As much of a source text as fits into a line of the report.
fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(70) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
