//! Azure Blob Storage, also by the names of Data Lake Storage.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use object_store::azure::{AzureAccessKey, AzureConfigKey as Key, AzureCredential, MicrosoftAzureBuilder};
use object_store::client::CredentialProvider;
use object_store::{ClientConfigKey, ObjectStore};

use super::{Asked, Cloud, Making, Setting, Settings, client_setting, show};
use crate::credentials::{Credential, Renewed};
use crate::error::{Error, Result};
use crate::options::flag;

/// The variables that are read, with the option each one stands for.
const VARIABLES: [(&str, Key); 19] = [
    ("AZURE_STORAGE_ACCOUNT", Key::AccountName),
    ("AZURE_STORAGE_ACCOUNT_NAME", Key::AccountName),
    ("AZURE_STORAGE_KEY", Key::AccessKey),
    ("AZURE_STORAGE_ACCESS_KEY", Key::AccessKey),
    ("AZURE_STORAGE_ACCOUNT_KEY", Key::AccessKey),
    ("AZURE_STORAGE_SAS_KEY", Key::SasKey),
    ("AZURE_STORAGE_SAS_TOKEN", Key::SasKey),
    ("AZURE_STORAGE_TOKEN", Key::Token),
    ("AZURE_CLIENT_ID", Key::ClientId),
    ("AZURE_STORAGE_CLIENT_ID", Key::ClientId),
    ("AZURE_CLIENT_SECRET", Key::ClientSecret),
    ("AZURE_STORAGE_CLIENT_SECRET", Key::ClientSecret),
    ("AZURE_TENANT_ID", Key::AuthorityId),
    ("AZURE_STORAGE_TENANT_ID", Key::AuthorityId),
    ("AZURE_AUTHORITY_HOST", Key::AuthorityHost),
    ("AZURE_FEDERATED_TOKEN_FILE", Key::FederatedTokenFile),
    ("AZURE_MSI_ENDPOINT", Key::MsiEndpoint),
    ("AZURE_STORAGE_ENDPOINT", Key::Endpoint),
    ("AZURE_SKIP_SIGNATURE", Key::SkipSignature),
];

/// What says who is asking; one from the options puts those of the variables aside.
const CREDENTIALS: [Key; 7] = [
    Key::AccessKey,
    Key::SasKey,
    Key::Token,
    Key::ClientId,
    Key::ClientSecret,
    Key::AuthorityId,
    Key::FederatedTokenFile,
];

/// A container and what is said about it.
pub(super) struct Container {
    name: String,
    own: HashMap<Key, String>,
}

/// The setting that an option stands for, if it is one of Azure's.
pub(super) fn setting(name: &str) -> Option<Setting<Key>> {
    let bare = ["azure_storage_", "azure_"].iter().find_map(|front| name.strip_prefix(front)).unwrap_or(name);
    if let Some(client) = client_setting(bare) {
        return Some(client);
    }
    match bare {
        "endpoint_url" => return Some(Setting::Own(Key::Endpoint)),
        "account" => return Some(Setting::Own(Key::AccountName)),
        _ => {}
    }
    match Key::from_str(name).or_else(|_| Key::from_str(bare)) {
        Ok(Key::Client(key)) => Some(Setting::Client(key)),
        Ok(Key::ContainerName) | Err(_) => None,
        Ok(key) => Some(Setting::Own(key)),
    }
}

impl Container {
    /// Puts options over variables and checks that something says who is asking. `account` is the one in the URL.
    pub(super) fn new(
        asked: &Asked<'_>,
        account: Option<&str>,
        name: &str,
    ) -> Result<(Self, Vec<(ClientConfigKey, String)>)> {
        let mut settings = Settings::gather(asked, &VARIABLES, &CREDENTIALS, setting);
        let connection = asked.options.get("connection_string").map(str::to_owned);
        let connection = connection.or_else(|| (asked.environment)("AZURE_STORAGE_CONNECTION_STRING"));
        if let Some(connection) = connection.filter(|text| !text.trim().is_empty()) {
            connect(&connection, &mut settings)?;
        }
        if let Some(account) = account {
            settings.set(Key::AccountName, account);
        }
        if flag(asked.options, "anonymous")? {
            settings.set(Key::SkipSignature, "true");
        }
        settings.check_endpoint(Key::Endpoint)?;
        if !settings.has(Key::AccountName) && !settings.yes(Key::UseEmulator) {
            return asked.missing(
                "name the storage account: the option account_name, the variable AZURE_STORAGE_ACCOUNT_NAME, or a URL \
                 like abfss://container@account.dfs.core.windows.net/prefix",
            );
        }
        if !asked.credentials && !says_who(asked, &settings)? {
            return asked.missing(
                "set the variable AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN (or the options account_key, \
                 sas_token or bearer_token), or AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or \
                 use_azure_cli=true, or anonymous=true for a public container, or metadata_service=true on a machine \
                 with a managed identity",
            );
        }
        let (own, client) = settings.split();
        Ok((Self { name: name.to_owned(), own }, client))
    }
}

/// Takes a connection string apart, as Azure's portal shows it; what is set otherwise goes before it.
fn connect(text: &str, settings: &mut Settings<Key>) -> Result<()> {
    let parts: HashMap<String, &str> = text
        .split(';')
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()))
        .collect();
    let part = |name: &str| parts.get(name).copied().filter(|value| !value.is_empty()).map(str::to_owned);
    let Some(account) = part("accountname") else {
        return Err(Error::InvalidOption {
            option: "connection_string".to_owned(),
            value: "***".to_owned(),
            reason: "it has no AccountName; copy it whole from the portal: AccountName=...;AccountKey=...".to_owned(),
        });
    };
    let protocol = part("defaultendpointsprotocol").unwrap_or_else(|| "https".to_owned());
    let suffix = part("endpointsuffix").map(|suffix| format!("{protocol}://{account}.blob.{suffix}"));
    let found = [
        (Key::AccountName, Some(account)),
        (Key::AccessKey, part("accountkey")),
        (Key::SasKey, part("sharedaccesssignature")),
        (Key::Endpoint, part("blobendpoint").or(suffix)),
    ];
    for (key, value) in found {
        if let Some(value) = value.filter(|_| !settings.has(key)) {
            settings.set(key, value);
        }
    }
    Ok(())
}

fn says_who(asked: &Asked<'_>, settings: &Settings<Key>) -> Result<bool> {
    let has = |key| settings.has(key);
    let application =
        has(Key::ClientId) && has(Key::AuthorityId) && (has(Key::ClientSecret) || has(Key::FederatedTokenFile));
    Ok(has(Key::AccessKey)
        || has(Key::SasKey)
        || has(Key::Token)
        || application
        || has(Key::MsiEndpoint)
        || has(Key::FabricTokenServiceUrl)
        || settings.yes(Key::UseAzureCli)
        || settings.yes(Key::UseEmulator)
        || settings.yes(Key::SkipSignature)
        || flag(asked.options, "metadata_service")?)
}

impl Cloud for Container {
    fn client(&self, making: Making) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = MicrosoftAzureBuilder::new()
            .with_container_name(&self.name)
            .with_client_options(making.options)
            .with_retry(making.retry)
            .with_http_connector(making.connector);
        for (key, value) in &self.own {
            builder = builder.with_config(*key, value);
        }
        if let Some(renewed) = making.credentials {
            builder = builder.with_credentials(Arc::new(Given(renewed)));
        }
        Ok(Arc::new(builder.build()?))
    }
}

/// Credentials from code.
#[derive(Debug)]
struct Given(Arc<Renewed>);

#[async_trait::async_trait]
impl CredentialProvider for Given {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        Ok(Arc::new(match self.0.current().await? {
            Credential::Bearer { token } => AzureCredential::BearerToken(token),
            Credential::AzureKey { account_key } => {
                let key = AzureAccessKey::try_new(&account_key);
                AzureCredential::AccessKey(key.map_err(|_| self.0.failed("the account key is not base64".into()))?)
            }
            Credential::AzureSas { sas_token } => AzureCredential::SASToken(
                url::form_urlencoded::parse(sas_token.trim_start_matches('?').as_bytes()).into_owned().collect(),
            ),
            other => return Err(self.0.unfit(&other, "a bearer token, an account key or a SAS token")),
        }))
    }
}

/// Shows no secrets.
impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, &self.own)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Storage;

    const KEY: &str = "Zm9yZWJheQ==";

    fn open(url: &str, options: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Storage> {
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Storage::builder(url).options(options.iter().copied().collect()).open_in(&environment)
    }

    fn container(options: &[(&str, &str)], variables: &[(&str, &str)]) -> HashMap<Key, String> {
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let options = options.iter().copied().collect();
        let asked = Asked { url: "az://c", options: &options, environment: &environment, credentials: false };
        Container::new(&asked, None, "c").unwrap().0.own
    }

    #[test]
    fn an_account_and_something_that_says_who_asks_are_needed() {
        let error = open("az://c/lake", &[("account_key", KEY)], &[]).unwrap_err();
        assert!(matches!(error, Error::NoCredentials { .. }) && error.to_string().contains("account_name"), "{error}");
        let error = open("az://c/lake", &[("account_name", "a")], &[]).unwrap_err();
        assert!(error.to_string().contains("AZURE_STORAGE_ACCOUNT_KEY"), "{error}");
        assert!(open("az://c/lake", &[("account_name", "a"), ("account_key", KEY)], &[]).is_ok());
        assert!(open("abfss://c@a.dfs.core.windows.net/lake", &[("sas_token", "sv=1&sig=2")], &[]).is_ok());
        let variables = [
            ("AZURE_STORAGE_ACCOUNT", "a"),
            ("AZURE_CLIENT_ID", "i"),
            ("AZURE_TENANT_ID", "t"),
            ("AZURE_CLIENT_SECRET", "s"),
        ];
        assert!(open("az://c", &[], &variables).is_ok());
        assert!(open("az://c", &[], &variables[..3]).is_err(), "the secret is missing");
    }

    #[test]
    fn a_connection_string_is_taken_apart_and_goes_behind_what_is_set() {
        let text =
            format!("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={KEY};EndpointSuffix=core.windows.net");
        let found = container(&[], &[("AZURE_STORAGE_CONNECTION_STRING", &text)]);
        assert_eq!(found[&Key::AccountName], "a");
        assert_eq!(found[&Key::AccessKey], KEY);
        assert_eq!(found[&Key::Endpoint], "https://a.blob.core.windows.net");
        let found = container(&[("account_name", "b"), ("connection_string", &text)], &[]);
        assert_eq!(found[&Key::AccountName], "b");
        let error = open("az://c", &[("connection_string", "secret=x")], &[]).unwrap_err();
        assert!(matches!(&error, Error::InvalidOption { .. }) && !error.to_string().contains("secret=x"), "{error}");
    }

    #[test]
    fn what_debug_shows_holds_no_secret() {
        let options =
            [("account_name", "acc"), ("account_key", KEY), ("sas_token", "sig=hunter2")].into_iter().collect();
        let asked = Asked { url: "az://c", options: &options, environment: &|_| None, credentials: false };
        let shown = format!("{:?} {options:?}", Container::new(&asked, None, "c").unwrap().0);
        assert!(!shown.contains(KEY) && !shown.contains("hunter2") && shown.contains("acc"), "{shown}");
    }
}
