//! Binaries with this crate in them need no CUDA to start, and show none of its symbols.

use std::process::Command;

fn read(program: &str, argument: &str) -> String {
    let me = std::env::current_exe().unwrap();
    let output = Command::new(program).arg(argument).arg(me).output().expect("binutils");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn no_binary_needs_libcuda_to_start() {
    let needed = read("readelf", "-d");
    assert!(needed.contains("libc.so") && !needed.contains("libcuda"), "{needed}");
}

#[test]
fn no_function_of_the_driver_is_exported_or_left_to_the_linker() {
    let symbols = read("readelf", "--dyn-syms");
    assert!(
        !symbols
            .split_whitespace()
            .any(|word| word.starts_with("cu") && word.chars().nth(2).is_some_and(char::is_uppercase))
    );
}
