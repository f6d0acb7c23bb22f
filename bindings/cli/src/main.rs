//! The `forebay` command.

fn main() {
    std::process::exit(forebay_cli::run(std::env::args_os()));
}
