//! Expressions.

use sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgOperator, FunctionArgumentClause, FunctionArgumentList, FunctionArguments,
    InTarget, Interval, Subscript, TypedString, WindowFrame, WindowFrameBound, WindowSpec, WindowType,
};

use super::{Outcome, UNLISTED, Walk, names, plain_wildcard};
use crate::builtin;
use crate::symbols::{Call, Name};

impl Walk {
    pub(super) fn exprs(&mut self, exprs: &[Expr]) -> Outcome {
        exprs.iter().try_for_each(|expr| self.expr(expr))
    }

    /// An expression, at any depth.
    pub(super) fn expr(&mut self, expr: &Expr) -> Outcome {
        let mut expr = expr;
        // A chain of operators leans to the left, as deep as it is long.
        while let Expr::BinaryOp { left, op, right } = expr {
            binary(op)?;
            self.expr(right)?;
            expr = left;
        }
        match expr {
            Expr::Identifier(_) | Expr::Value(_) | Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => Ok(()),
            Expr::CompoundIdentifier(parts) => match parts.last() {
                Some(last) => self.attribute(names::fold(last)?),
                None => Err(UNLISTED),
            },
            Expr::IsFalse(expr)
            | Expr::IsNotFalse(expr)
            | Expr::IsTrue(expr)
            | Expr::IsNotTrue(expr)
            | Expr::IsNull(expr)
            | Expr::IsNotNull(expr)
            | Expr::IsUnknown(expr)
            | Expr::IsNotUnknown(expr)
            | Expr::Nested(expr)
            | Expr::UnaryOp { op: _, expr }
            | Expr::Collate { expr, collation: _ }
            | Expr::IsNormalized { expr, form: _, negated: _ }
            | Expr::Extract { field: _, syntax: _, expr } => self.expr(expr),
            Expr::IsDistinctFrom(left, right)
            | Expr::IsNotDistinctFrom(left, right)
            | Expr::AnyOp { left, compare_op: _, right, is_some: _ }
            | Expr::AllOp { left, compare_op: _, right }
            | Expr::AtTimeZone { timestamp: left, time_zone: right }
            | Expr::Position { expr: left, r#in: right } => {
                self.expr(left)?;
                self.expr(right)
            }
            Expr::Like { negated: _, any: _, expr, pattern, escape_char }
            | Expr::ILike { negated: _, any: _, expr, pattern, escape_char }
            | Expr::SimilarTo { negated: _, expr, pattern, escape_char } => {
                self.expr(expr)?;
                self.expr(pattern)?;
                self.optional(escape_char.as_deref())
            }
            Expr::Between { expr, negated: _, low, high } => {
                self.expr(expr)?;
                self.expr(low)?;
                self.expr(high)
            }
            Expr::In { expr, target, negated: _, global: false } => {
                self.expr(expr)?;
                match target {
                    InTarget::List(exprs) => self.exprs(exprs),
                    InTarget::Subquery(query) => self.query(query),
                    InTarget::Unnest(_) | InTarget::Table { .. } => Err(UNLISTED),
                }
            }
            Expr::Exists { subquery, negated: _ } | Expr::Subquery(subquery) => self.query(subquery),
            Expr::Tuple(exprs) | Expr::Array(Array { elem: exprs, named: true }) => self.exprs(exprs),
            Expr::GroupingSets(sets) => sets.iter().try_for_each(|set| self.exprs(set)),
            Expr::Cube(sets) | Expr::Rollup(sets) => {
                self.listed.extend(["cube", "rollup"].map(Box::from));
                sets.iter().try_for_each(|set| self.exprs(set))
            }
            _ => self.other(expr),
        }
    }

    fn other(&mut self, expr: &Expr) -> Outcome {
        match expr {
            Expr::Function(function) => self.function(function),
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, format: None } => {
                self.expr(expr)?;
                self.data_type(data_type)
            }
            Expr::TypedString(TypedString { data_type, value: _, uses_odbc_syntax: false }) => {
                self.data_type(data_type)
            }
            Expr::Interval(Interval { value, .. }) => self.expr(value),
            Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.optional(operand.as_deref())?;
                for CaseWhen { condition, result } in conditions {
                    self.expr(condition)?;
                    self.expr(result)?;
                }
                self.optional(else_result.as_deref())
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                self.expr(root)?;
                access_chain.iter().try_for_each(|access| self.access(access))
            }
            // With commas these are calls like any other, found by the search path.
            Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(_) } => self.by_name("ceil", &[expr]),
            Expr::Floor { expr, field: CeilFloorKind::DateTimeField(_) } => self.by_name("floor", &[expr]),
            Expr::Substring { expr, substring_from, substring_for, special: _, shorthand } => {
                self.by_name(if *shorthand { "substr" } else { "substring" }, &[expr])?;
                self.optional(substring_from.as_deref())?;
                self.optional(substring_for.as_deref())
            }
            Expr::Trim { trim_where: _, trim_what, expr, trim_characters } => {
                self.by_name("btrim", &[expr])?;
                self.optional(trim_what.as_deref())?;
                self.exprs(trim_characters.as_deref().unwrap_or_default())
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                self.by_name("overlay", &[expr, overlay_what, overlay_from])?;
                self.optional(overlay_for.as_deref())
            }
            Expr::Struct { values, fields } => {
                Self::no_fields(fields)?;
                self.exprs(values)
            }
            _ => Err(UNLISTED),
        }
    }

    fn by_name(&mut self, name: &str, args: &[&Expr]) -> Outcome {
        self.call(Name { schema: None, name: name.into(), builtin: false }, None)?;
        args.iter().try_for_each(|arg| self.expr(arg))
    }

    fn access(&mut self, access: &AccessExpr) -> Outcome {
        match access {
            AccessExpr::Dot(Expr::Identifier(ident)) => self.attribute(names::fold(ident)?),
            AccessExpr::Subscript(Subscript::Index { index }) => self.expr(index),
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                self.optional(lower_bound.as_ref())?;
                self.optional(upper_bound.as_ref())
            }
            AccessExpr::Dot(_) | AccessExpr::Subscript(Subscript::Slice { .. }) => Err(UNLISTED),
        }
    }

    fn function(&mut self, function: &Function) -> Outcome {
        let Function {
            name,
            uses_odbc_syntax: false,
            parameters: FunctionArguments::None,
            args,
            within_group,
            filter,
            null_treatment: None,
            over,
        } = function
        else {
            return Err(UNLISTED);
        };
        let quoted =
            name.0.iter().any(|part| part.as_ident().is_some_and(|ident| ident.quote_style.is_some()));
        let name = names::object(name)?;
        let syntax = !quoted && name.schema.is_none();
        match args {
            FunctionArguments::None if syntax && builtin::is_value_keyword(&name.name) => {}
            FunctionArguments::Subquery(query) if syntax && &*name.name == "array" => self.query(query)?,
            FunctionArguments::None | FunctionArguments::Subquery(_) => return Err(UNLISTED),
            FunctionArguments::List(list) => {
                if !(syntax && builtin::is_syntax(&name.name)) {
                    let arguments = u16::try_from(list.args.len()).ok();
                    if is_of_node(&name, list) {
                        self.node_local = true;
                        self.functions.push(Call { name: Name { builtin: true, ..name }, arguments });
                    } else {
                        self.call(name, arguments)?;
                    }
                }
                self.arguments(list)?;
            }
        }
        self.sort(within_group)?;
        self.optional(filter.as_deref())?;
        match over {
            None | Some(WindowType::NamedWindow(_)) => Ok(()),
            Some(WindowType::WindowSpec(spec)) => self.window(spec),
        }
    }

    fn arguments(&mut self, list: &FunctionArgumentList) -> Outcome {
        let FunctionArgumentList { duplicate_treatment: _, args, clauses } = list;
        args.iter().try_for_each(|arg| self.argument(arg))?;
        for clause in clauses {
            match clause {
                FunctionArgumentClause::OrderBy(exprs) => self.sort(exprs)?,
                _ => return Err(UNLISTED),
            }
        }
        Ok(())
    }

    pub(super) fn argument(&mut self, arg: &FunctionArg) -> Outcome {
        let arg = match arg {
            FunctionArg::Unnamed(arg)
            | FunctionArg::Named {
                name: _,
                arg,
                operator: FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment,
            }
            | FunctionArg::ExprNamed {
                name: Expr::Identifier(_),
                arg,
                operator: FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment,
            } => arg,
            FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => return Err(UNLISTED),
        };
        match arg {
            FunctionArgExpr::Expr(expr) => self.expr(expr),
            FunctionArgExpr::QualifiedWildcard(_) | FunctionArgExpr::Wildcard => Ok(()),
            FunctionArgExpr::WildcardWithOptions(options) => plain_wildcard(options),
        }
    }

    pub(super) fn window(&mut self, spec: &WindowSpec) -> Outcome {
        let WindowSpec { window_name: _, partition_by, order_by, window_frame } = spec;
        self.exprs(partition_by)?;
        self.sort(order_by)?;
        let Some(WindowFrame { units: _, start_bound, end_bound }) = window_frame else {
            return Ok(());
        };
        for bound in std::iter::once(start_bound).chain(end_bound) {
            match bound {
                WindowFrameBound::CurrentRow => {}
                WindowFrameBound::Preceding(expr) | WindowFrameBound::Following(expr) => {
                    self.optional(expr.as_deref())?;
                }
            }
        }
        Ok(())
    }
}

/// Operators of PostgreSQL; those spelled as words in other databases are not.
fn binary(op: &BinaryOperator) -> Outcome {
    match op {
        BinaryOperator::Xor
        | BinaryOperator::DuckIntegerDivide
        | BinaryOperator::MyIntegerDivide
        | BinaryOperator::Match
        | BinaryOperator::Regexp
        | BinaryOperator::Glob
        | BinaryOperator::Assignment
        | BinaryOperator::PGCustomBinaryOperator(_) => Err(UNLISTED),
        _ => Ok(()),
    }
}

/// Whether this is a `current_setting` whose argument names a setting of the node's own.
fn is_of_node(name: &Name, list: &FunctionArgumentList) -> bool {
    if !matches!(name.schema.as_deref(), None | Some("pg_catalog")) || &*name.name != "current_setting" {
        return false;
    }
    let setting = match list.args.first() {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))) => {
            value.value.clone().into_string()
        }
        _ => None,
    };
    setting
        .is_some_and(|setting| builtin::setting(&setting.to_ascii_lowercase()) == builtin::Effect::NodeLocal)
}
