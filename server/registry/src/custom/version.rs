//! What a custom resource has in one version beyond a built-in resource.

use std::sync::Arc;

use plinth_codec::selector::CustomFields;
use smol_str::SmolStr;

use super::definition::{ConversionStrategy, Definition, DefinitionVersion, ScalePaths};
use super::schema::Compiled;
use plinth_api::ApiError;

/// The state of a custom resource in one version that built-in resources do not have. Rows with the same one
/// are equal.
pub struct CustomVersion {
    /// The CustomResourceDefinition that declares the version.
    pub definition: Arc<Definition>,
    /// Index of the version in the definition.
    place: usize,
    /// Index of the storage version.
    stored: usize,
    /// Its selectable fields.
    pub fields: CustomFields,
}

impl std::fmt::Debug for CustomVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.definition.name, self.version().name)
    }
}

impl CustomVersion {
    /// The version at that place of a definition, which stores its objects in another place's.
    pub(crate) fn new(definition: &Arc<Definition>, place: usize, stored: usize) -> CustomVersion {
        let selectable = &definition.versions[place].selectable;
        let fields = CustomFields::new(definition.namespaced, selectable.iter().map(SmolStr::as_str));
        CustomVersion { definition: definition.clone(), place, stored, fields }
    }

    /// The version of the definition.
    pub fn version(&self) -> &DefinitionVersion {
        &self.definition.versions[self.place]
    }

    /// The storage version.
    pub fn stored(&self) -> &DefinitionVersion {
        &self.definition.versions[self.stored]
    }

    /// The compiled schema of this version.
    ///
    /// # Errors
    /// 500 when it cannot be compiled.
    pub fn compiled(&self) -> Result<Option<&Arc<Compiled>>, ApiError> {
        self.version().schema.compiled()
    }

    /// Whether conversion between versions changes only `apiVersion`.
    pub fn converts_by_name(&self) -> bool {
        matches!(self.definition.conversion, ConversionStrategy::None)
    }

    /// The paths of the subresource `scale`.
    pub fn scale(&self) -> Option<&ScalePaths> {
        self.version().scale.as_ref()
    }
}
