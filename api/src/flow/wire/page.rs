//! Pages of listings.

/// Declares a page of a listing.
macro_rules! pages {
    ($(
        $(#[$about:meta])*
        $visible:vis $name:ident of $item:ident from $source:ty: $order:literal;
    )*) => {
        $(
            $(#[$about])*
            #[derive(Debug, serde::Serialize, utoipa::ToSchema)]
            $visible struct $name {
                #[doc = $order]
                pub(crate) items: Vec<$item>,
                /// Cursor of the next page; null on the last one.
                #[schema(required)]
                pub(crate) next_cursor: Option<String>,
            }

            impl From<chimera_engine::flow::view::ListPage<$source>> for $name {
                fn from(page: chimera_engine::flow::view::ListPage<$source>) -> Self {
                    Self {
                        items: page.items.into_iter().map($item::from).collect(),
                        next_cursor: page.next_cursor,
                    }
                }
            }
        )*
    };
}

pub(crate) use pages;
