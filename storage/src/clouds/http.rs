//! Plain web servers, which are only read, and headers that go with every request.

use std::fmt;
use std::sync::Arc;

use ::http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ObjectStore};

use super::{Asked, Cloud, Making, Settings, client_setting};
use crate::error::{Error, Result};
use crate::location::Remote;

/// The root of a web server or a folder of it.
#[derive(Debug)]
pub(super) struct Site {
    base: String,
}

impl Site {
    pub(super) fn new(asked: &Asked<'_>, base: &str) -> Result<(Self, Vec<(ClientConfigKey, String)>)> {
        let mut settings = Settings::<()>::gather(asked, &[], &[], client_setting);
        if base.starts_with("http://") {
            settings.client.push((ClientConfigKey::AllowHttp, "true".to_owned()));
        }
        Ok((Self { base: base.to_owned() }, settings.split().1))
    }
}

impl Cloud for Site {
    fn client(&self, making: Making) -> object_store::Result<Arc<dyn ObjectStore>> {
        let builder = HttpBuilder::new()
            .with_url(&self.base)
            .with_client_options(making.options)
            .with_retry(making.retry)
            .with_http_connector(making.connector);
        Ok(Arc::new(builder.build()?))
    }
}

/// Headers that go with every request; what they say is never shown.
#[derive(Default)]
pub(super) struct Headers(pub(super) HeaderMap);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// `authorization` for web servers, and `user_project`, who pays for requests, for Google.
pub(super) fn headers(asked: &Asked<'_>, remote: &Remote) -> Result<Headers> {
    let wanted = match remote {
        Remote::Http { .. } => ("authorization", AUTHORIZATION),
        Remote::Google { .. } => ("user_project", HeaderName::from_static("x-goog-user-project")),
        _ => return Ok(Headers::default()),
    };
    let (option, name) = wanted;
    let Some(value) = asked.options.get(option) else { return Ok(Headers::default()) };
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| Error::InvalidOption {
        option: option.to_owned(),
        value: "***".to_owned(),
        reason: "it cannot stand in a header: visible ASCII characters only".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(Headers(HeaderMap::from_iter([(name, value)])))
}
