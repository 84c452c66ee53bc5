//! ConfigMap (`core`).

use crate::core::config_data;
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy =
    Strategy { validate: config_data::validate_data, validate_update: config_data::validate_update, ..BASE };
