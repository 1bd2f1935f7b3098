//! The one binary: arguments in, text out, no logic.

fn main() {
    println!("updraft {}", env!("CARGO_PKG_VERSION"));
}
