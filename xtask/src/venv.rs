//! The Python environment of the tasks: `target/venv`, made without root and kept until its requirements change.

use crate::repo::Repo;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs everything else; pip only brings it.
const UV: &str = "uv==0.13.9";
/// What a Python must say `True` to.
const FIT: &str = "import sys, venv, ensurepip; print(sys.version_info >= (3, 10))";

/// A set of packages: `xtask/requirements/<name>.txt`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    Demo,
    Tools,
    Test,
    Bench,
}

impl Set {
    fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Tools => "tools",
            Self::Test => "test",
            Self::Bench => "bench",
        }
    }
}

/// The environment, with the sets that were asked for installed.
pub(crate) struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// Makes what is missing. With everything there it only compares a few small files.
    pub(crate) fn with(repo: &Repo, sets: &[Set]) -> Result<Self> {
        let venv = Self { folder: repo.target.join("venv") };
        if !venv.python().exists() {
            let python = find_python()?;
            println!("making a Python environment in {}", repo.short(&venv.folder));
            shell::run(Command::new(python).args(["-m", "venv", "--clear"]).arg(&venv.folder))?;
        }
        if !venv.stamp("uv").holds(UV) {
            shell::run(venv.command("python").args(["-m", "pip", "install", "--quiet", UV]))?;
            venv.stamp("uv").write(UV)?;
        }
        for set in sets {
            venv.install(repo, *set)?;
        }
        Ok(venv)
    }

    /// An environment beside this one, `target/NAME`, that holds what a file of requirements names and nothing else.
    pub(crate) fn apart(repo: &Repo, name: &str, requirements: &Path) -> Result<Self> {
        let venv = Self { folder: repo.target.join(name) };
        let (want, stamp) = (read(requirements)?, venv.stamp("requirements"));
        if !stamp.holds(&want) {
            let main = Self::with(repo, &[])?;
            shell::run(
                main.command("uv")
                    .args(["venv", "--quiet", "--clear", "--python"])
                    .arg(main.python())
                    .arg(&venv.folder),
            )?;
            let mut install = main.command("uv");
            install.args(["pip", "install", "--quiet", "--python"]).arg(venv.python()).arg("-r").arg(requirements);
            shell::run(&mut install)?;
            stamp.write(&want)?;
        }
        Ok(venv)
    }

    /// A program of the environment, in the environment.
    pub(crate) fn command(&self, program: &str) -> Command {
        let bin = if cfg!(windows) { self.folder.join("Scripts") } else { self.folder.join("bin") };
        let mut command = Command::new(bin.join(format!("{program}{}", std::env::consts::EXE_SUFFIX)));
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&rest)));
        command.env("VIRTUAL_ENV", &self.folder).env("PATH", path.unwrap_or(rest));
        command.env_remove("PYTHONHOME").env_remove("PYTHONPATH");
        command
    }

    /// The path of the environment's interpreter.
    pub(crate) fn python(&self) -> PathBuf {
        PathBuf::from(self.command("python").get_program())
    }

    fn install(&self, repo: &Repo, set: Set) -> Result<()> {
        let folder = repo.root.join("xtask").join("requirements");
        let names = folder.join(format!("{}.txt", set.name()));
        let lock = folder.join("lock.txt");
        // The stamp is what was asked for, word for word, so that no hash has to be trusted or explained.
        let want = format!("{}\n{}", read(&names)?, read(&lock)?);
        let stamp = self.stamp(set.name());
        if stamp.holds(&want) {
            return Ok(());
        }
        shell::run(self.command("uv").args(["pip", "install", "--quiet", "-r"]).arg(names).arg("-c").arg(lock))?;
        stamp.write(&want)
    }

    fn stamp(&self, name: &str) -> Stamp {
        Stamp(self.folder.join(format!(".installed-{name}")))
    }
}

struct Stamp(PathBuf);

impl Stamp {
    fn holds(&self, text: &str) -> bool {
        std::fs::read_to_string(&self.0).is_ok_and(|found| found == text)
    }

    fn write(&self, text: &str) -> Result<()> {
        std::fs::write(&self.0, text).with_context(|| format!("cannot write {}", self.0.display()))
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The first of `FOREBAY_PYTHON`, `python3` and `python` that is 3.10 or newer and can make environments.
fn find_python() -> Result<PathBuf> {
    let named = std::env::var_os("FOREBAY_PYTHON").map(PathBuf::from);
    let candidates = match &named {
        Some(python) => vec![python.clone()],
        None => vec!["python3".into(), "python".into()],
    };
    let mut tried = Vec::new();
    for python in candidates {
        match shell::output(Command::new(&python).args(["-c", FIT])) {
            Ok(answer) if answer.trim() == "True" => return Ok(python),
            Ok(_) => tried.push(format!("{} is older than 3.10", python.display())),
            Err(error) => tried.push(format!("{}: {error:#}", python.display())),
        }
    }
    bail!(
        "no Python of 3.10 or newer with the modules venv and ensurepip (Debian: the package python3-venv) was found; \
         name one in FOREBAY_PYTHON. Tried:\n  {}",
        tried.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_holds_only_the_text_that_was_written() {
        let path = std::env::temp_dir().join(format!("forebay-xtask-stamp-{}", std::process::id()));
        let stamp = Stamp(path.clone());
        assert!(!stamp.holds("a"));
        assert!(stamp.write("a").is_ok());
        assert!(stamp.holds("a") && !stamp.holds("b"));
        assert!(std::fs::remove_file(path).is_ok());
    }

    #[test]
    fn every_set_has_its_file_and_every_package_in_it_is_locked() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("requirements");
        let lock = read(&folder.join("lock.txt")).unwrap_or_default();
        for set in [Set::Demo, Set::Tools, Set::Test, Set::Bench] {
            let names = read(&folder.join(format!("{}.txt", set.name()))).unwrap_or_default();
            let names: Vec<_> = names.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
            assert!(!names.is_empty(), "{} names nothing", set.name());
            for name in names {
                let bare = name.split(['[', '=']).next().unwrap_or_default();
                assert!(lock.lines().any(|line| line.starts_with(&format!("{bare}=="))), "{bare} is not locked");
            }
        }
    }
}
