//! The stores that the storage tests run against: fresh servers on loopback, and where each is found.

use crate::repo::Repo;
use crate::server::Server;
use crate::shell;
use crate::venv::Venv;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// The bucket or container in each of them.
const BUCKET: &str = "forebay-test";
/// The version of Azurite that the tests are written for.
const AZURITE: &str = "azurite@3.35.0";
/// The account that every Azurite has, and its key, which is no secret: Microsoft's documentation prints it.
const ACCOUNT: (&str, &str) =
    ("devstoreaccount1", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==");

/// Running servers, by the variables that the tests look for them in.
pub(crate) struct Clouds(Vec<(&'static str, Server)>);

impl Clouds {
    /// moto alone, for tests that need some S3.
    pub(crate) fn s3(repo: &Repo, venv: &Venv) -> Result<Self> {
        let mut moto = Server::moto(repo, venv)?;
        moto.make_bucket(BUCKET)?;
        Ok(Self(vec![("FOREBAY_TEST_S3", moto)]))
    }

    /// All of them; Azurite only where there is npm to install it.
    pub(crate) fn all(repo: &Repo, venv: &Venv) -> Result<Self> {
        let mut clouds = Self::s3(repo, venv)?;
        let mut seaweed = Server::seaweed(repo, venv)?;
        seaweed.make_bucket(BUCKET)?;
        clouds.0.push(("FOREBAY_TEST_SEAWEED", seaweed));
        let mut google = Server::google(repo, venv)?;
        google.make_bucket(BUCKET)?;
        clouds.0.push(("FOREBAY_TEST_GOOGLE", google));
        match azurite_modules(repo)? {
            Some(modules) => clouds.0.push(("FOREBAY_TEST_AZURE", azurite(repo, venv, modules)?)),
            None => println!("!! no npm here: the tests against Azurite, Microsoft's server, are LEFT OUT"),
        }
        Ok(clouds)
    }

    /// Tells a command where they are.
    pub(crate) fn tell(&self, command: &mut Command) {
        for (variable, server) in &self.0 {
            command.env(variable, server.url());
        }
    }
}

fn azurite(repo: &Repo, venv: &Venv, modules: PathBuf) -> Result<Server> {
    let server = Server::azurite(repo, venv, &modules)?;
    let script = repo.root.join("xtask").join("py").join("azure_container.py");
    let mut make = venv.command("python");
    make.arg(script).args([server.url().as_str(), ACCOUNT.0, ACCOUNT.1, BUCKET]);
    shell::output(&mut make).context("Azurite runs and makes no container")?;
    Ok(server)
}

/// The folder that Azurite is installed in, by npm if need be; `None` where there is no npm.
fn azurite_modules(repo: &Repo) -> Result<Option<PathBuf>> {
    let works = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success());
    if !works("npm") || !works("node") {
        return Ok(None);
    }
    let folder = repo.target.join("azurite");
    let stamp = folder.join(".installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == AZURITE) {
        return Ok(Some(folder));
    }
    println!("installing {AZURITE} with npm into {} (190 MB, once)", repo.short(&folder));
    std::fs::create_dir_all(&folder)?;
    let mut install = Command::new("npm");
    install.args(["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]).arg(&folder).arg(AZURITE);
    shell::run(&mut install).context("npm is here and could not install Azurite, the server of the Azure tests")?;
    std::fs::write(&stamp, AZURITE)?;
    Ok(Some(folder))
}
