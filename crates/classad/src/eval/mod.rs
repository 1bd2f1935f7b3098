//! The tree walk: always right, never deeper than its limits. It decides scope, laziness and order of
//! evaluation; operators are in [`ops`], built-in functions in `crate::func`.

pub(crate) mod context;
mod flatten;
mod moments;
pub(crate) mod ops;
mod scope;
pub(crate) mod truth;

use crate::ad::ClassAd;
use crate::expr::{BinOp, Expr, Node, Repr};
use crate::limits;
use crate::name::{Name, Special};
use crate::value::{AdValue, FrameId, List, Value};
use context::{Budget, EvalContext};
pub use scope::Scope;
use std::cell::Cell;
use std::sync::{Arc, LazyLock};

/// The evaluation as a whole failed (a limit, or no scope at all): callers see the value error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

pub(crate) type Eval = Result<Value, Failed>;

const MY: FrameId = FrameId(0);
const TARGET: FrameId = FrameId(1);
/// The wrapper around a match: a context ad for each side, and the match ad as root.
const LEFT_CONTEXT: FrameId = FrameId(2);
const RIGHT_CONTEXT: FrameId = FrameId(3);
const MATCH: FrameId = FrameId(4);
/// Frames of nested ads are numbered from here.
const NESTED: u32 = 8;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Steps that the evaluations of this thread have taken so far: for whoever divides work into portions that cost alike.
pub fn steps_taken() -> u64 {
    TAKEN.get()
}

/// Counts work of this thread that costs like so many steps, but is no evaluation.
pub(crate) fn note_steps(steps: u64) {
    TAKEN.set(TAKEN.get().wrapping_add(steps));
}

/// One evaluation.
pub(crate) struct State<'a> {
    pub(crate) ctx: &'a EvalContext<'a>,
    my: Option<&'a ClassAd>,
    target: Option<&'a ClassAd>,
    nested: Vec<(ClassAd, FrameId)>,
    root: FrameId,
    /// Attributes being evaluated, to notice circles: where the ad keeps them, and the frame. Not the node:
    /// attributes with the same text share their nodes.
    active: Active,
    depth: u32,
    calls: u32,
    /// Steps that are left, and that there were.
    steps: u64,
    budget: u64,
    bytes: usize,
    random: u64,
}

/// What a name stands for.
enum Found<'a> {
    Nothing,
    Here(&'a Expr, FrameId),
    /// From a nested ad, with the place where that keeps it.
    Nested(Expr, usize, FrameId),
    Frame(FrameId),
    Now,
}

impl Drop for State<'_> {
    fn drop(&mut self) {
        TAKEN.set(TAKEN.get().wrapping_add(self.budget.saturating_sub(self.steps)));
    }
}

impl<'a> State<'a> {
    pub(crate) fn new(
        my: Option<&'a ClassAd>,
        target: Option<&'a ClassAd>,
        ctx: &'a EvalContext<'a>,
    ) -> State<'a> {
        let root = match (my, target) {
            (Some(_), Some(_)) => MATCH,
            (Some(_), None) => MY,
            _ => FrameId::NONE,
        };
        let (steps, bytes) = match ctx.budget {
            Budget::Pool => (limits::EVAL_STEPS, limits::EVAL_BYTES),
            Budget::Fact => (limits::FACT_STEPS, limits::FACT_BYTES),
            Budget::Language => (limits::LANGUAGE_STEPS, limits::LANGUAGE_BYTES),
        };
        State {
            ctx,
            my,
            target,
            nested: Vec::new(),
            root,
            active: Active::default(),
            depth: limits::EVAL_DEPTH,
            calls: limits::CALL_DEPTH,
            steps,
            budget: steps,
            bytes,
            random: ctx.seed,
        }
    }

    /// The frame evaluation starts in.
    pub(crate) fn start(&self) -> FrameId {
        if self.my.is_some() { MY } else { FrameId::NONE }
    }

    /// Accounts for memory an operation is about to keep, and for filling it.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), Failed> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Failed)?;
        self.spend(bytes / limits::COPIED_PER_STEP)
    }

    /// Accounts for bytes that are looked at one by one.
    pub(crate) fn touch(&mut self, bytes: usize) -> Result<(), Failed> {
        self.spend(bytes / limits::BYTES_PER_STEP)
    }

    /// Accounts for comparing two values.
    #[inline]
    pub(crate) fn weigh(&mut self, a: &Value, b: &Value) -> Result<(), Failed> {
        match (a, b) {
            (Value::Str(a), Value::Str(b)) => self.touch(a.as_bytes().len().min(b.as_bytes().len())),
            _ => Ok(()),
        }
    }

    /// Compares or computes, and accounts for it.
    #[inline]
    pub(crate) fn binary(&mut self, op: BinOp, a: &Value, b: &Value) -> Eval {
        self.weigh(a, b)?;
        Ok(ops::binary(op, a, b))
    }

    /// The text of something that is printed, if it is no longer than what is left: lists may hold each other many times over.
    pub(crate) fn print(&mut self, print: impl FnOnce(usize) -> Option<String>) -> Result<String, Failed> {
        let by_steps = usize::try_from(self.steps).unwrap_or(usize::MAX);
        let most = by_steps.saturating_mul(limits::BYTES_PER_STEP).min(self.bytes);
        let Some(text) = print(most) else {
            self.steps = 0;
            return Err(Failed);
        };
        self.touch(text.len())?;
        Ok(text)
    }

    /// Accounts for work other than node evaluations. What cannot be paid for is not done, and nothing after it.
    #[inline]
    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), Failed> {
        match self.steps.checked_sub(steps as u64) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => Err(Failed),
        }
    }

    pub(crate) fn next_random(&mut self) -> u64 {
        // SplitMix64: small, seedable, good enough for spreading load.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn enter(&mut self) -> Result<(), Failed> {
        self.depth = self.depth.checked_sub(1).ok_or(Failed)?;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth += 1;
    }

    #[inline]
    pub(crate) fn eval(&mut self, expr: &Expr, cur: FrameId) -> Eval {
        match &expr.0 {
            Repr::Lit(value) => Ok(value.clone()),
            Repr::Node(node) => self.eval_node(node, cur),
        }
    }

    fn eval_node(&mut self, node: &Arc<Node>, cur: FrameId) -> Eval {
        self.spend(1)?;
        match &**node {
            Node::Ref(name) => self.eval_name(name, cur),
            Node::RootRef(name) => self.eval_root_name(name),
            Node::Select(base, name) => self.eval_select(base, name, cur),
            Node::Unary(op, operand) => {
                self.enter()?;
                let value = self.eval(operand, cur)?;
                self.leave();
                Ok(ops::unary(*op, &value))
            }
            Node::Binary(BinOp::And, a, b) => Ok(self.logic(true, a, b, cur)?.into()),
            Node::Binary(BinOp::Or, a, b) => Ok(self.logic(false, a, b, cur)?.into()),
            Node::Binary(op, a, b) => self.eval_binary(*op, a, b, cur),
            Node::Ternary(condition, yes, no) => {
                self.enter()?;
                let value = match self.eval(condition, cur)? {
                    Value::Undefined => Value::Undefined,
                    other => match other.truth() {
                        Some(true) => self.eval(yes, cur)?,
                        Some(false) => self.eval(no, cur)?,
                        None => Value::Error,
                    },
                };
                self.leave();
                Ok(value)
            }
            Node::Elvis(value, other) => {
                self.enter()?;
                let value = match self.eval(value, cur)? {
                    Value::Undefined => self.eval(other, cur)?,
                    value => value,
                };
                self.leave();
                Ok(value)
            }
            Node::Subscript(base, index) => self.eval_subscript(base, index, cur),
            Node::Paren(inner) => {
                self.enter()?;
                let value = self.eval(inner, cur)?;
                self.leave();
                Ok(value)
            }
            Node::Call(call) => {
                let Some(func) = call.func else { return Ok(Value::Error) };
                self.calls = self.calls.checked_sub(1).ok_or(Failed)?;
                let value = crate::func::call(self, func, &call.args, cur)?;
                self.calls += 1;
                Ok(value)
            }
            Node::List(items) => Ok(Value::List(List { items: items.clone(), frame: cur })),
            Node::Ad(ad) => {
                let frame = self.frame_of(ad, cur)?;
                Ok(Value::Ad(AdValue { ad: ad.clone(), frame }))
            }
            Node::RelLit(secs) => Ok(Value::Real(*secs)),
        }
    }

    fn eval_binary(&mut self, op: BinOp, a: &Expr, b: &Expr, cur: FrameId) -> Eval {
        self.enter()?;
        // Operands that are plain values somewhere are used where they lie.
        let value = match (self.peek(a, cur), self.peek(b, cur)) {
            (Some(a), Some(b)) => self.binary(op, a, b)?,
            (Some(a), None) => {
                let b = self.eval(b, cur)?;
                self.binary(op, a, &b)?
            }
            (None, _) => {
                let a = self.eval(a, cur)?;
                if let Some(b) = self.peek(b, cur) {
                    self.binary(op, &a, b)?
                } else {
                    let b = self.eval(b, cur)?;
                    self.binary(op, &a, &b)?
                }
            }
        };
        self.leave();
        Ok(value)
    }

    fn eval_name(&mut self, name: &Name, cur: FrameId) -> Eval {
        let mut found = self.lookup(name, cur);
        if matches!(found, Found::Nothing) && self.target.is_some() {
            // Only the sides of a match fall back to each other; ads nested in them do not.
            found = match cur {
                MY => self.lookup(name, TARGET),
                TARGET => self.lookup(name, MY),
                _ => Found::Nothing,
            };
        }
        self.eval_found(found)
    }

    #[inline(never)]
    fn eval_root_name(&mut self, name: &Name) -> Eval {
        if self.root == FrameId::NONE {
            return Err(Failed);
        }
        let found = self.lookup(name, self.root);
        self.eval_found(found)
    }

    fn eval_select(&mut self, base: &Expr, name: &Name, cur: FrameId) -> Eval {
        if let Some(frame) = self.side(base, cur) {
            let found = self.lookup(name, frame);
            return self.eval_found(found);
        }
        self.enter()?;
        let base = self.eval(base, cur)?;
        self.leave();
        self.select(&base, name)
    }

    /// The side `MY.` or `TARGET.` means here, if it is certain without looking at attributes of those names.
    #[inline]
    fn side(&self, base: &Expr, cur: FrameId) -> Option<FrameId> {
        let Some(Node::Ref(name)) = base.as_node() else { return None };
        let ad = match cur {
            MY => self.my?,
            TARGET => self.target?,
            _ => return None,
        };
        if ad.has_specials() {
            return None;
        }
        match name.special() {
            Special::My => Some(cur),
            Special::Target | Special::Other if self.target.is_some() => {
                Some(if cur == MY { TARGET } else { MY })
            }
            _ => None,
        }
    }

    pub(crate) fn select(&mut self, base: &Value, name: &Name) -> Eval {
        match base {
            Value::Undefined => Ok(Value::Undefined),
            Value::Ad(ad) => {
                let frame = self.frame_of_value(ad)?;
                let found = self.lookup(name, frame);
                self.eval_found(found)
            }
            Value::List(list) => {
                self.enter()?;
                self.charge(list.items.len() * size_of::<Expr>())?;
                let mut items = Vec::with_capacity(list.items.len());
                for item in list.items.iter() {
                    self.spend(1)?;
                    let item = self.eval(item, list.frame)?;
                    items.push(Expr(Repr::Lit(self.select(&item, name)?)));
                }
                self.leave();
                Ok(Value::List(List { items: items.into(), frame: FrameId::NONE }))
            }
            _ => Ok(Value::Error),
        }
    }

    #[inline(never)]
    fn eval_subscript(&mut self, base: &Expr, index: &Expr, cur: FrameId) -> Eval {
        self.enter()?;
        let base = self.eval(base, cur)?;
        let index = self.eval(index, cur)?;
        let value = match (&base, &index) {
            (Value::Error, _) | (_, Value::Error) => Value::Error,
            (Value::Undefined, _) | (_, Value::Undefined) => Value::Undefined,
            (Value::List(list), Value::Int(at)) => {
                // The original keeps only 32 bits of the index.
                match usize::try_from(*at as i32).ok().and_then(|at| list.items.get(at)) {
                    Some(item) => self.eval(item, list.frame)?,
                    None => Value::Error,
                }
            }
            (Value::Ad(ad), Value::Str(name)) => match name.as_str() {
                Some(name) => {
                    let frame = self.frame_of_value(ad)?;
                    let found = self.own(frame, &Name::new(name));
                    // A subscript never yields an ad: recorded behaviour, use a selection for that.
                    match self.eval_found(found)? {
                        Value::Ad(_) => Value::Undefined,
                        value => value,
                    }
                }
                None => Value::Undefined,
            },
            _ => Value::Error,
        };
        self.leave();
        Ok(value)
    }

    #[inline]
    fn eval_found(&mut self, found: Found<'a>) -> Eval {
        match found {
            Found::Nothing => Ok(Value::Undefined),
            Found::Here(expr, frame) => self.eval_attribute(expr, frame),
            Found::Nested(expr, place, frame) => self.eval_attribute_at(&expr, place, frame),
            Found::Frame(frame) => Ok(self.frame_value(frame)),
            Found::Now => Ok(Value::Int(self.ctx.now)),
        }
    }

    /// The value of an attribute's expression, which lies in its ad.
    fn eval_attribute(&mut self, expr: &Expr, frame: FrameId) -> Eval {
        self.eval_attribute_at(expr, std::ptr::from_ref(expr) as usize, frame)
    }

    fn eval_attribute_at(&mut self, expr: &Expr, place: usize, frame: FrameId) -> Eval {
        self.enter()?;
        let value = match &expr.0 {
            Repr::Lit(value) => value.clone(),
            Repr::Node(node) => {
                let key = (place, frame);
                if self.active.contains(key) {
                    Value::Undefined
                } else {
                    self.active.push(key);
                    let value = self.eval_node(node, frame)?;
                    self.active.pop();
                    value
                }
            }
        };
        self.leave();
        Ok(value)
    }

    /// Looks for a name from an ad outward.
    #[inline]
    fn lookup(&self, name: &Name, start: FrameId) -> Found<'a> {
        let mut frame = start;
        while frame != FrameId::NONE {
            match self.own(frame, name) {
                Found::Nothing => {}
                found => return found,
            }
            let outer = self.parent(frame);
            match name.special() {
                Special::None | Special::Target | Special::Other | Special::Ad | Special::Match => {}
                Special::My | Special::Own => return Found::Frame(frame),
                Special::Root => return Found::frame(self.root),
                Special::Parent => return Found::frame(outer),
                Special::CurrentTime => return Found::Now,
            }
            frame = outer;
        }
        Found::Nothing
    }

    /// The attribute of that name in one frame, not looking outward.
    #[inline]
    fn own(&self, frame: FrameId, name: &Name) -> Found<'a> {
        let here = |ad: Option<&'a ClassAd>| {
            ad.and_then(|ad| ad.lookup(name)).map_or(Found::Nothing, |expr| Found::Here(expr, frame))
        };
        match frame {
            MY => here(self.my),
            TARGET => here(self.target),
            LEFT_CONTEXT | RIGHT_CONTEXT => {
                let (mine, other) = if frame == LEFT_CONTEXT { (MY, TARGET) } else { (TARGET, MY) };
                match name.special() {
                    Special::My | Special::Ad => Found::Frame(mine),
                    Special::Target | Special::Other => Found::Frame(other),
                    _ => Found::Nothing,
                }
            }
            MATCH if name.special() == Special::Match => match_attribute(name),
            MATCH => Found::Nothing,
            FrameId(n) => match self.nested.get((n - NESTED) as usize) {
                Some((ad, _)) => ad.lookup(name).map_or(Found::Nothing, |e| {
                    Found::Nested(e.clone(), std::ptr::from_ref(e) as usize, frame)
                }),
                None => Found::Nothing,
            },
        }
    }

    fn parent(&self, frame: FrameId) -> FrameId {
        if frame == self.root {
            return FrameId::NONE;
        }
        match frame {
            MY => LEFT_CONTEXT,
            TARGET => RIGHT_CONTEXT,
            LEFT_CONTEXT | RIGHT_CONTEXT => MATCH,
            MATCH | FrameId::NONE => FrameId::NONE,
            FrameId(n) => self.nested.get((n - NESTED) as usize).map_or(FrameId::NONE, |(_, outer)| *outer),
        }
    }

    /// The frame of an ad that lies within another frame.
    pub(crate) fn frame_of(&mut self, ad: &ClassAd, outer: FrameId) -> Result<FrameId, Failed> {
        /// Looking further back than this costs more than a second frame for the same ad.
        const RECENT: usize = 64;
        let recent = self.nested.iter().enumerate().rev().take(RECENT);
        for (at, (known, parent)) in recent {
            if *parent == outer && known.same(ad) {
                return Ok(FrameId(at as u32 + NESTED));
            }
        }
        self.charge(32)?;
        self.nested.push((ad.clone(), outer));
        Ok(FrameId(self.nested.len() as u32 - 1 + NESTED))
    }

    pub(crate) fn frame_of_value(&mut self, ad: &AdValue) -> Result<FrameId, Failed> {
        if ad.frame == FrameId::NONE { self.frame_of(&ad.ad, FrameId::NONE) } else { Ok(ad.frame) }
    }

    fn frame_value(&self, frame: FrameId) -> Value {
        let own = |ad: Option<&ClassAd>| ad.cloned().unwrap_or_default();
        let reference = |name: &str| Expr::node(Node::RootRef(Name::new(name)));
        let ad = match frame {
            FrameId::NONE => return Value::Undefined,
            MY => own(self.my),
            TARGET => own(self.target),
            LEFT_CONTEXT | RIGHT_CONTEXT => {
                let (mine, other) = if frame == LEFT_CONTEXT { ("LEFT", "RIGHT") } else { ("RIGHT", "LEFT") };
                [("ad", mine), ("my", mine), ("other", other), ("target", other)]
                    .into_iter()
                    .map(|(name, side)| (name, reference(side)))
                    .collect()
            }
            MATCH => {
                let mut ad = MATCH_AD.clone();
                ad.insert("LEFT", own(self.my).into());
                ad.insert("RIGHT", own(self.target).into());
                ad
            }
            FrameId(n) => {
                self.nested.get((n - NESTED) as usize).map(|(ad, _)| ad.clone()).unwrap_or_default()
            }
        };
        Value::Ad(AdValue { ad, frame })
    }

    /// The expression an attribute of the frame has, for functions that work on text.
    pub(crate) fn attribute_expr(&self, name: &Name, cur: FrameId) -> Option<Expr> {
        match self.lookup(name, cur) {
            Found::Here(expr, _) => Some(expr.clone()),
            Found::Nested(expr, ..) => Some(expr),
            Found::Nothing | Found::Frame(_) | Found::Now => None,
        }
    }

    /// The ad a frame belongs to.
    pub(crate) fn frame_ad(&self, frame: FrameId) -> Option<ClassAd> {
        match self.frame_value(frame) {
            Value::Ad(ad) => Some(ad.ad),
            _ => None,
        }
    }
}

impl Found<'_> {
    fn frame(frame: FrameId) -> Self {
        if frame == FrameId::NONE { Found::Nothing } else { Found::Frame(frame) }
    }
}

/// The attributes the wrapper around a match adds.
static MATCH_AD: LazyLock<ClassAd> = LazyLock::new(|| {
    let side = |side: &str, name: &str| Expr::node(Node::Select(Expr::attribute(side), Name::new(name)));
    let both =
        Expr::node(Node::Binary(BinOp::And, side("RIGHT", "requirements"), side("LEFT", "requirements")));
    [
        ("symmetricMatch", both),
        ("leftMatchesRight", side("RIGHT", "requirements")),
        ("rightMatchesLeft", side("LEFT", "requirements")),
        ("leftRankValue", side("LEFT", "rank")),
        ("rightRankValue", side("RIGHT", "rank")),
    ]
    .into_iter()
    .collect()
});

fn match_attribute<'a>(name: &Name) -> Found<'a> {
    match name.as_str().to_ascii_lowercase().as_str() {
        "left" => Found::Frame(MY),
        "right" => Found::Frame(TARGET),
        "lctx" => Found::Frame(LEFT_CONTEXT),
        "rctx" => Found::Frame(RIGHT_CONTEXT),
        _ => MATCH_AD.lookup(name).map_or(Found::Nothing, |expr| Found::Here(expr, MATCH)),
    }
}

/// The stack of attribute expressions being evaluated; the first few need no allocation.
#[derive(Default)]
struct Active {
    first: [(usize, u32); 8],
    count: usize,
    more: Vec<(usize, u32)>,
}

impl Active {
    fn contains(&self, (address, frame): (usize, FrameId)) -> bool {
        let key = (address, frame.0);
        self.first[..self.count].contains(&key) || self.more.contains(&key)
    }

    fn push(&mut self, (address, frame): (usize, FrameId)) {
        if self.count < self.first.len() {
            self.first[self.count] = (address, frame.0);
            self.count += 1;
        } else {
            self.more.push((address, frame.0));
        }
    }

    fn pop(&mut self) {
        if self.more.pop().is_none() {
            self.count -= 1;
        }
    }
}
