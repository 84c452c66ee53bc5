//! Tables and PartialObjectMetadata.
