//! Tables without a tenant column, and the views that add one.
//!
//! One declaration defines both, so a view always has its table's columns followed by the scope columns.

/// Declares a table without a tenant and its scoped view.
macro_rules! scoped {
    (
        $(#[$doc:meta])*
        $table:ident = $name:literal,
        $view:ident = $view_name:literal,
        rank: $rank:literal,
        key: $key:expr,
        uniques: $uniques:expr,
        columns: [$($column:expr),* $(,)?],
    ) => {
        $(#[$doc])*
        pub static $table: Table = Table {
            name: $name,
            columns: &[$($column),*],
            key: $key,
            uniques: $uniques,
            tenant: None,
            rank: $rank,
        };

        #[doc = concat!("`", $name, "` with the scope of each row.")]
        pub static $view: Table = Table {
            name: $view_name,
            columns: &[
                $($column,)*
                Column::new("tenant_id", ColumnType::Text),
                Column::new("campaign_id", ColumnType::Text).nullable(),
                Column::new("swarm_task_id", ColumnType::Text).nullable(),
                Column::new("trace_id", ColumnType::Text).nullable(),
            ],
            key: $key,
            uniques: &[],
            tenant: Some("tenant_id"),
            rank: 950,
        };
    };
}

pub(crate) use scoped;
