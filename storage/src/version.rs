//! Objects of others, which may change: how one is known again.

use object_store::ObjectMeta;

/// What an object must be to be the one that was meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// Its size in bytes.
    pub size: u64,
    /// Its etag, as [`Entry`](crate::Entry) has it; if `None`, only the size is compared.
    pub etag: Option<String>,
}

impl Version {
    /// In what an object differs, if it does.
    pub(crate) fn differs(&self, meta: &ObjectMeta) -> Option<String> {
        if meta.size != self.size {
            return Some(format!("it has {} bytes and had {}", meta.size, self.size));
        }
        let wanted = self.etag.as_ref()?;
        match etag(meta) {
            Some(found) if found == *wanted => None,
            Some(found) => Some(format!("its etag is '{found}' and was '{wanted}'")),
            None => Some(format!("its store gives no etag, and gave '{wanted}'")),
        }
    }
}

/// An object's etag, without `W/` in front and quotes around it: stores write it one way in listings and another in headers.
pub(crate) fn etag(meta: &ObjectMeta) -> Option<String> {
    let etag = meta.e_tag.as_deref()?;
    let etag = etag.strip_prefix("W/").unwrap_or(etag);
    let bare = etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"')).unwrap_or(etag);
    (!bare.is_empty()).then(|| bare.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(size: u64, e_tag: Option<&str>) -> ObjectMeta {
        let location = object_store::path::Path::from("x");
        ObjectMeta { location, last_modified: Default::default(), size, e_tag: e_tag.map(str::to_owned), version: None }
    }

    #[test]
    fn an_object_is_known_by_size_and_etag_however_that_is_written() {
        let version = Version { size: 5, etag: Some("ab".into()) };
        for same in ["ab", "\"ab\"", "W/\"ab\""] {
            assert_eq!(version.differs(&meta(5, Some(same))), None, "{same}");
        }
        assert_eq!(version.differs(&meta(6, Some("ab"))).as_deref(), Some("it has 6 bytes and had 5"));
        assert_eq!(version.differs(&meta(5, Some("\"c\""))).as_deref(), Some("its etag is 'c' and was 'ab'"));
        assert!(version.differs(&meta(5, None)).is_some() && version.differs(&meta(5, Some("\"\""))).is_some());
        let any = Version { size: 5, etag: None };
        assert!(any.differs(&meta(5, Some("x"))).is_none() && any.differs(&meta(4, Some("x"))).is_some());
    }
}
