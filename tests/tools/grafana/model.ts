// A dashboard of this repository in Grafana's own types: stricter than they are where they say
// Record<string, unknown>, since the options of each type of panel are checked as well.

import type * as g from '@grafana/schema';
import type { Options as BarGauge } from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import type {
  FieldConfig as HeatmapField,
  Options as Heatmap,
} from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type { Options as Stat } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type {
  FieldConfig as TimelineField,
  Options as Timeline,
} from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type { FieldConfig as TableField, Options as Table } from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type {
  FieldConfig as SeriesField,
  Options as Series,
} from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// An enumeration as its values, which is how JSON has it; all else as it is.
type Plain<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends object
      ? { [K in keyof T]: Plain<T[K]> }
      : T;

interface Prometheus {
  refId: string;
  datasource: { type: 'prometheus'; uid: string };
  editorMode: 'code' | 'builder';
  expr: string;
  legendFormat: string;
  format: 'time_series' | 'table' | 'heatmap';
  instant: boolean;
  range: boolean;
  exemplar: boolean;
}

interface Link {
  title: string;
  url: string;
  targetBlank: boolean;
}

type Property =
  | { id: 'unit'; value: string }
  | { id: 'mappings'; value: g.ValueMapping[] }
  | { id: 'links'; value: Link[] }
  | { id: 'custom.cellOptions'; value: g.TableCellOptions };

type Known = 'id' | 'title' | 'description' | 'datasource' | 'gridPos';
type Transformation =
  | { id: 'merge'; options: Record<string, never> }
  | {
      id: 'organize';
      options: {
        excludeByName: Record<string, boolean>;
        indexByName: Record<string, number>;
        renameByName: Record<string, string>;
      };
    };

interface Fields<Custom> {
  defaults: Omit<Plain<g.FieldConfig>, 'custom' | 'links'> & { custom: Custom; links?: Link[] };
  overrides: { matcher: { id: 'byName'; options: string }; properties: Plain<Property>[] }[];
}

type Panel<Type extends string, Options, Custom> = Required<Pick<Plain<g.Panel>, Known>> & {
  type: Type;
  targets: Prometheus[];
  options: Plain<Options>;
  fieldConfig: Fields<Plain<Custom>>;
  transformations: Transformation[];
};

type AnyPanel =
  | Panel<'stat', Stat, Record<string, never>>
  | Panel<'bargauge', BarGauge, Record<string, never>>
  | Panel<'table', Table, TableField>
  | Panel<'timeseries', Series, SeriesField>
  | Panel<'heatmap', Heatmap, HeatmapField>
  | Panel<'state-timeline', Timeline, TimelineField>
  | Plain<g.RowPanel>;

type Annotation = Omit<Plain<g.AnnotationQuery>, 'target'> & {
  target: { refId: string; expr: string; interval: string; range: boolean };
  titleFormat: string;
  textFormat: string;
  useValueForTime: boolean;
};

export type Dashboard = Omit<Plain<g.Dashboard>, 'panels' | 'annotations'> & {
  panels: AnyPanel[];
  annotations: { list: Annotation[] };
};
