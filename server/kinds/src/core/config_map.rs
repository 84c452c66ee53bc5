//! ConfigMap (`core`).

use plinth_codec::table::{count, Cell, Column, Now};
use plinth_codec::Value;

use crate::core::config_data;
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    validate: config_data::validate_data,
    validate_update: config_data::validate_update,
    columns: COLUMNS,
    ..BASE
};

const COLUMNS: &[Column] =
    &[Column::NAME, Column::computed("Data", &["data#", "binaryData#"], data_cell), Column::AGE];

fn data_cell(map: &Value, _: Now) -> Cell<'_> {
    (count(map, "data") + count(map, "binaryData")).into()
}
