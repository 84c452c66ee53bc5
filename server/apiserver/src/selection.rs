//! Selects objects of a collection: label and field selectors against stored headers.

use plinth_codec::selector::{FieldSelector, LabelSelector};

use plinth_api::{ApiError, Query};
use plinth_registry::{split_key, ResourceType};
use plinth_storage::Header;

/// The parsed selectors of a request.
#[derive(Debug)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// Parses the selectors of a query. The name in the path of a list or watch is a field selector too.
    ///
    /// # Errors
    /// 400 with upstream's message.
    pub(crate) fn parse(resource: &ResourceType, query: &Query, name: &str) -> Result<Selection, ApiError> {
        let bad = |e: plinth_codec::selector::SelectorError| ApiError::bad_request(e.to_string());
        let labels = match query.label_selector.as_deref() {
            None | Some("") => LabelSelector::everything(),
            Some(text) => LabelSelector::parse(text).map_err(bad)?,
        };
        let mut fields = match query.field_selector.as_deref() {
            None | Some("") => FieldSelector::everything(),
            Some(text) => FieldSelector::parse(text)
                .and_then(|f| match &resource.custom {
                    Some(custom) => f.resolve_custom(&custom.fields),
                    None => f.resolve(&resource.strategy.selectable),
                })
                .map_err(bad)?,
        };
        if !name.is_empty() {
            if fields.exact("metadata.name").is_some_and(|n| n != name) {
                return Err(ApiError::bad_request(
                    "both a name and a field selector for another name were specified",
                ));
            }
            fields = FieldSelector::name(name);
        }
        Ok(Selection { labels, fields })
    }

    /// Selects every object.
    pub(crate) fn everything() -> Selection {
        Selection { labels: LabelSelector::everything(), fields: FieldSelector::everything() }
    }

    /// Whether every object is selected.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// The only name that can match, if there is one.
    pub(crate) fn single_name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    /// Checks that only the object of that name is selected, where the request was authorized for it alone.
    ///
    /// # Errors
    /// 500: authorization and selection read one query differently.
    pub(crate) fn keeps_to(&self, authorized: Option<&str>) -> Result<(), ApiError> {
        match authorized {
            Some(name) if self.single_name() != Some(name) => {
                Err(ApiError::internal("the field selector was authorized as another one"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a stored object is selected; reads the header only, does not allocate.
    pub(crate) fn matches(&self, resource: &ResourceType, object_key: &[u8], stored: &Header<'_>) -> bool {
        if !self.labels.is_everything() && !self.labels.matches_sorted(stored.labels()) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        let prefix = resource.storage.as_ref().map_or("", |s| s.prefix.as_str());
        let (namespace, name) = split_key(prefix, resource.row.namespaced, object_key).unwrap_or_default();
        self.fields.matches(|field| match field {
            "metadata.name" => name,
            "metadata.namespace" => namespace,
            field => {
                let index = match &resource.custom {
                    Some(custom) => custom.fields.paths.iter().position(|path| path == field),
                    None => resource.fields.iter().position(|f| f.name == field),
                };
                index.and_then(|i| stored.field(i)).unwrap_or_default()
            }
        })
    }
}
