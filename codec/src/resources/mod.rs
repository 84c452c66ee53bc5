//! The resource table: names, scope, verbs, subresources.
