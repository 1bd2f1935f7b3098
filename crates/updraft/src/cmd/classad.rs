//! `updraft classad`: the language at the command line. One-off forms for people, `--jsonl` forms for tools:
//! one object per line in, one per line out, in order; a bad line gives an object with `error` and the rest
//! goes on.

mod batch;
mod report;

use clap::{Subcommand, ValueEnum};
use classad::{ClassAd, EvalContext, Expr, ParseError, Scope};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Arguments of `updraft classad`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Evaluate an expression
    Eval {
        /// The expression
        #[arg(required_unless_present = "jsonl", conflicts_with = "jsonl")]
        expr: Option<String>,
        /// File with the ad the expression sees as MY
        #[arg(long, value_name = "FILE", conflicts_with = "jsonl")]
        my: Option<PathBuf>,
        /// File with the ad the expression sees as TARGET
        #[arg(long, value_name = "FILE", conflicts_with = "jsonl")]
        target: Option<PathBuf>,
        /// Read {"my","target","expr"} lines, write {"type","value"} lines
        #[arg(long)]
        jsonl: bool,
    },
    /// Match two ads; says which side refused, and which clause
    Match {
        /// File with one ad
        #[arg(required_unless_present = "jsonl", conflicts_with = "jsonl")]
        a: Option<PathBuf>,
        /// File with the other ad
        #[arg(required_unless_present = "jsonl", conflicts_with = "jsonl")]
        b: Option<PathBuf>,
        /// Read {"left","right"} lines, write the five result columns
        #[arg(long)]
        jsonl: bool,
    },
    /// Print an ad in another form
    Fmt {
        /// File with an ad; standard input if it is missing or `-`
        file: Option<PathBuf>,
        /// The form
        #[arg(long, value_enum, default_value_t = Form::Old)]
        to: Form,
    },
    /// Check an ad for syntax errors, unknown functions and names nobody defines
    Check {
        /// File with an ad; `-` is standard input
        file: PathBuf,
    },
    /// Say whether texts parse (for tools)
    Parse {
        /// Read {"as","input"} lines, write {"ok"} lines
        #[arg(long, required = true)]
        jsonl: bool,
    },
    /// Print expressions and ads in all forms (for tools)
    Print {
        /// Read {"kind","input"[,"ad"]} lines, write the result columns
        #[arg(long, required = true)]
        jsonl: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// One `Name = expression` per line
    Old,
    /// Brackets, one line
    New,
    /// Brackets, indented
    Pretty,
    /// JSON
    Json,
    /// XML
    Xml,
}

/// Runs `updraft classad`.
pub(crate) fn run(args: Args) -> ExitCode {
    let outcome = match args.command {
        Command::Eval { jsonl: true, .. } => batch::run(batch::eval),
        Command::Match { jsonl: true, .. } => batch::run(batch::match_),
        Command::Parse { .. } => batch::run(batch::parse),
        Command::Print { .. } => batch::run(batch::print),
        Command::Eval { expr, my, target, .. } => {
            eval(&expr.unwrap_or_default(), my.as_deref(), target.as_deref())
        }
        Command::Match { a, b, .. } => match_files(&a.unwrap_or_default(), &b.unwrap_or_default()),
        Command::Fmt { file, to } => fmt(file.as_deref(), to),
        Command::Check { file } => check(&file),
    };
    match outcome {
        Ok(code) => code,
        Err(message) => {
            eprint!("{}", with_newline(message));
            ExitCode::FAILURE
        }
    }
}

type Outcome = Result<ExitCode, String>;

fn with_newline(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Everything after this many bytes of a file is refused.
const FILE_BYTES: u64 = classad::limits::SOURCE_BYTES as u64;

fn read(path: &Path) -> Result<String, String> {
    let fail = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().take(FILE_BYTES + 1).read_to_string(&mut text).map_err(fail)?;
    } else {
        let file = std::fs::File::open(path).map_err(fail)?;
        file.take(FILE_BYTES + 1).read_to_string(&mut text).map_err(fail)?;
    }
    if text.len() as u64 > FILE_BYTES {
        return Err(format!("{} is larger than {FILE_BYTES} bytes", path.display()));
    }
    Ok(text)
}

/// An ad in any form: brackets, JSON and XML are known by their first character, lines are the rest.
fn parse_ad(text: &str) -> Result<ClassAd, ParseError> {
    let start = text.trim_start();
    match start.as_bytes().first() {
        Some(b'[') => ClassAd::parse_new(text),
        Some(b'{') => ClassAd::parse_json(text),
        Some(b'<') => ClassAd::parse_xml(text),
        _ => ClassAd::parse_old(text),
    }
}

fn read_ad(path: &Path) -> Result<ClassAd, String> {
    let text = read(path)?;
    parse_ad(&text).map_err(|e| format!("{}:\n{}", path.display(), e.render()))
}

/// The clock is read here, once, and handed to the language.
fn context() -> EvalContext<'static> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    EvalContext::at(now).with_whole_budget()
}

fn eval(text: &str, my: Option<&Path>, target: Option<&Path>) -> Outcome {
    let my = my.map(read_ad).transpose()?;
    let target = target.map(read_ad).transpose()?;
    let expr = Expr::parse(text).map_err(|e| e.render())?;
    let empty = ClassAd::new();
    let mut scope = match (&my, &target) {
        (Some(my), _) => Scope::of(my),
        // A target alone still needs a side to be the target of.
        (None, Some(_)) => Scope::of(&empty),
        (None, None) => Scope::new(),
    };
    if let Some(target) = &target {
        scope = scope.target(target);
    }
    outln!("{}", scope.context(context()).eval(&expr));
    for note in report::missing_names(&expr, my.as_ref(), target.as_ref()) {
        errln!("note: {note}");
    }
    Ok(ExitCode::SUCCESS)
}

fn match_files(a: &Path, b: &Path) -> Outcome {
    let (left, right) = (read_ad(a)?, read_ad(b)?);
    let (text, matched) = report::explain(&left, &right, &a.display().to_string(), &b.display().to_string());
    print!("{text}");
    Ok(if matched { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn fmt(file: Option<&Path>, to: Form) -> Outcome {
    let ad = read_ad(file.unwrap_or(Path::new("-")))?;
    let text = match to {
        Form::Old => ad.to_old_string(),
        Form::New => ad.to_string(),
        Form::Pretty => ad.to_pretty_string().trim_start().to_owned(),
        Form::Json => ad.to_json(),
        Form::Xml => ad.to_xml(),
    };
    print!("{}", with_newline(text));
    Ok(ExitCode::SUCCESS)
}

fn check(file: &Path) -> Outcome {
    let ad = read_ad(file)?;
    let notes = report::check(&ad);
    for note in &notes {
        outln!("{}: {note}", file.display());
    }
    if notes.is_empty() {
        outln!("{}: {} attributes, no complaints", file.display(), ad.len());
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}
