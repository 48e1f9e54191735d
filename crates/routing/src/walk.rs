//! A walk over everything in a parsed query: what is not listed here is not a read.
//!
//! Every `match` and every destructuring names all there is, so that a new version of the parser that can say more
//! does not compile until somebody has decided what it means.

mod expression;
pub(crate) mod names;
mod source;

use sqlparser::ast::{
    Cte, Distinct, Fetch, GroupByExpr, LimitClause, NamedWindowExpr, Offset, OrderBy, OrderByExpr,
    OrderByKind, OrderByOptions, OrderBySort, Query, Select, SelectFlavor, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, SetOperator, SetQuantifier, Table, Values,
    WildcardAdditionalOptions, With,
};

use crate::reason::Reason;
use crate::symbols::{Call, Name};

/// What the walk has found so far.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) functions: Vec<Call>,
    pub(crate) relations: Vec<Name>,
    pub(crate) types: Vec<Name>,
    pub(crate) attributes: Vec<Box<str>>,
    /// Operators given by name in ORDER BY .. USING.
    pub(crate) operators: Vec<Name>,
    /// Names before a list of columns or of type modifiers, and syntax that looks like a call.
    pub(crate) listed: Vec<Box<str>>,
    /// Built-in functions that make or read session state were called.
    pub(crate) session: bool,
    /// Its answer belongs to the node that gives it.
    pub(crate) node_local: bool,
    /// Common table expressions in scope, innermost last.
    scope: Vec<Box<str>>,
}

/// An early end: why the query is not a read.
pub(crate) type Outcome = Result<(), Reason>;

/// The parser took a construct that PostgreSQL does not have, or that nobody has looked at.
const UNLISTED: Reason = Reason::Unparsable;

// === impl Walk ===

impl Walk {
    /// A whole query, at any depth.
    pub(crate) fn query(&mut self, query: &Query) -> Outcome {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause: None,
            settings: None,
            format_clause: None,
            pipe_operators,
        } = query
        else {
            return Err(UNLISTED);
        };
        if !locks.is_empty() {
            return Err(Reason::Locking);
        }
        if !pipe_operators.is_empty() {
            return Err(UNLISTED);
        }
        let outer = self.scope.len();
        if let Some(with) = with {
            self.with(with)?;
        }
        self.body(body)?;
        if let Some(order_by) = order_by {
            self.order_by(order_by)?;
        }
        if let Some(limit) = limit_clause {
            self.limit(limit)?;
        }
        match fetch {
            None | Some(Fetch { quantity: None, percent: false, with_ties: _ }) => {}
            Some(Fetch { quantity: Some(quantity), percent: false, with_ties: _ }) => self.expr(quantity)?,
            Some(Fetch { percent: true, .. }) => return Err(UNLISTED),
        }
        self.scope.truncate(outer);
        Ok(())
    }

    fn with(&mut self, with: &With) -> Outcome {
        let With { with_token: _, recursive, cte_tables } = with;
        // With RECURSIVE each expression sees all of the list, itself included; otherwise those before it.
        if *recursive {
            for cte in cte_tables {
                self.scope.push(names::fold(&cte.alias.name)?);
            }
        }
        for Cte { alias, query, from, materialized: _, closing_paren_token: _ } in cte_tables {
            if from.is_some() {
                return Err(UNLISTED);
            }
            self.alias(alias)?;
            self.query(query)?;
            if !*recursive {
                self.scope.push(names::fold(&alias.name)?);
            }
        }
        Ok(())
    }

    fn body(&mut self, body: &SetExpr) -> Outcome {
        let mut body = body;
        // A chain of set operations leans to the left, as deep as it is long.
        loop {
            match body {
                SetExpr::SetOperation { left, op, set_quantifier, right } => {
                    match (op, set_quantifier) {
                        (
                            SetOperator::Union | SetOperator::Except | SetOperator::Intersect,
                            SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None,
                        ) => {}
                        _ => return Err(UNLISTED),
                    }
                    self.body(right)?;
                    body = left;
                }
                SetExpr::Select(select) => return self.select(select),
                SetExpr::Query(query) => return self.query(query),
                SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows }) => {
                    return rows.iter().try_for_each(|row| self.exprs(&row.content));
                }
                SetExpr::Table(table) => {
                    let Table { table_name: Some(name), schema_name } = &**table else {
                        return Err(UNLISTED);
                    };
                    let schema = schema_name.as_ref().map(names::fold).transpose()?;
                    return self.relation(Name { schema, name: names::fold(name)?, builtin: false });
                }
                SetExpr::Values(_) => return Err(UNLISTED),
                SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                    return Err(Reason::Write);
                }
            }
        }
    }

    fn select(&mut self, select: &Select) -> Outcome {
        let Select {
            select_token: _,
            optimizer_hints: _,
            distinct,
            select_modifiers: None,
            top: None,
            top_before_distinct: false,
            projection,
            exclude: None,
            into,
            from,
            lateral_views,
            prewhere: None,
            selection,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having,
            named_window,
            qualify: None,
            window_before_qualify: _,
            value_table_mode: None,
            flavor: SelectFlavor::Standard,
        } = select
        else {
            return Err(UNLISTED);
        };
        if into.is_some() {
            return Err(Reason::Write);
        }
        if !(lateral_views.is_empty()
            && connect_by.is_empty()
            && cluster_by.is_empty()
            && distribute_by.is_empty()
            && sort_by.is_empty())
        {
            return Err(UNLISTED);
        }
        match distinct {
            None | Some(Distinct::All | Distinct::Distinct) => {}
            Some(Distinct::On(exprs)) => self.exprs(exprs)?,
        }
        projection.iter().try_for_each(|item| self.item(item))?;
        from.iter().try_for_each(|table| self.table(table))?;
        self.optional(selection.as_ref())?;
        match group_by {
            GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => self.exprs(exprs)?,
            GroupByExpr::Expressions(..) | GroupByExpr::All(_) => return Err(UNLISTED),
        }
        self.optional(having.as_ref())?;
        for window in named_window {
            match &window.1 {
                NamedWindowExpr::NamedWindow(_) => {}
                NamedWindowExpr::WindowSpec(spec) => self.window(spec)?,
            }
        }
        Ok(())
    }

    fn item(&mut self, item: &SelectItem) -> Outcome {
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } => self.expr(expr),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(_), options)
            | SelectItem::Wildcard(options) => plain_wildcard(options),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::Expr(expr), options) => {
                plain_wildcard(options)?;
                self.expr(expr)
            }
            SelectItem::ExprWithAliases { .. } => Err(UNLISTED),
        }
    }

    fn order_by(&mut self, order_by: &OrderBy) -> Outcome {
        match order_by {
            OrderBy { kind: OrderByKind::Expressions(exprs), interpolate: None } => self.sort(exprs),
            OrderBy { .. } => Err(UNLISTED),
        }
    }

    fn sort(&mut self, exprs: &[OrderByExpr]) -> Outcome {
        for expr in exprs {
            let OrderByExpr { expr, options: OrderByOptions { sort, nulls_first: _ }, with_fill: None } =
                expr
            else {
                return Err(UNLISTED);
            };
            match sort {
                None | Some(OrderBySort::Asc | OrderBySort::Desc) => {}
                Some(OrderBySort::Using(operator)) => {
                    let name = names::object(operator)?;
                    self.operators.push(name);
                }
            }
            self.expr(expr)?;
        }
        Ok(())
    }

    fn limit(&mut self, limit: &LimitClause) -> Outcome {
        match limit {
            LimitClause::LimitOffset { limit, offset, limit_by } if limit_by.is_empty() => {
                self.optional(limit.as_ref())?;
                match offset {
                    Some(Offset { value, rows: _ }) => self.expr(value),
                    None => Ok(()),
                }
            }
            LimitClause::LimitOffset { .. } | LimitClause::OffsetCommaLimit { .. } => Err(UNLISTED),
        }
    }

    fn relation(&mut self, name: Name) -> Outcome {
        if name.schema.is_none() && self.scope.contains(&name.name) {
            return Ok(());
        }
        let (name, node_local) = names::judge_relation(name)?;
        self.node_local |= node_local;
        self.relations.push(name);
        Ok(())
    }
}

fn plain_wildcard(options: &WildcardAdditionalOptions) -> Outcome {
    match options {
        WildcardAdditionalOptions {
            wildcard_token: _,
            opt_ilike: None,
            opt_exclude: None,
            opt_except: None,
            opt_replace: None,
            opt_rename: None,
            opt_alias: None,
        } => Ok(()),
        WildcardAdditionalOptions { .. } => Err(UNLISTED),
    }
}
