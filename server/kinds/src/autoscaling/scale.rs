//! Scale (`autoscaling`): the subresource `scale` of several kinds.

use std::sync::LazyLock;

use plinth_codec::table::{Column, TableDefinition};

/// The columns of its Tables.
pub static TABLE: LazyLock<TableDefinition> = LazyLock::new(|| {
    let name = Column::text("Name", "metadata.name", "");
    let desired = Column::int("Desired", "spec.replicas");
    let available = Column::int("Available", "status.replicas");
    TableDefinition::new(&[name, desired, available, Column::AGE], None)
});
