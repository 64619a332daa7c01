package main

// board is a dashboard of Grafana, as far as it is used here.
type board struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Templating    templating `json:"templating"`
	Panels        []panel    `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Query      string      `json:"query"`
	Datasource *datasource `json:"datasource,omitempty"`
	Refresh    int         `json:"refresh,omitempty"`
	IncludeAll bool        `json:"includeAll,omitempty"`
	Multi      bool        `json:"multi,omitempty"`
	AllValue   string      `json:"allValue,omitempty"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int          `json:"id"`
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Description string       `json:"description,omitempty"`
	GridPos     gridPos      `json:"gridPos"`
	Datasource  *datasource  `json:"datasource,omitempty"`
	Targets     []target     `json:"targets,omitempty"`
	FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

type fieldConfig struct {
	Defaults  defaults `json:"defaults"`
	Overrides []string `json:"overrides"` // none
}

type defaults struct {
	Unit string   `json:"unit"`
	Min  *float64 `json:"min,omitempty"`
}

// chart is one panel by what matters of it.
type chart struct {
	title, about, unit string
	kind               string // empty: timeseries
	wide               bool
	queries            []query
}

type query struct{ expr, legend string }

// section is a row of the dashboard.
type section struct {
	title  string
	charts []chart
}

func newBoard() board {
	source := &datasource{"prometheus", "${datasource}"}
	b := board{
		UID: "envoy-rls", Title: "envoy-rls", Description: "What the rate limiter decides, how fast, and who decided.", Tags: []string{"envoy", "rate-limit"},
		SchemaVersion: 39, Editable: true, Refresh: "30s", Time: timeRange{"now-1h", "now"},
		Templating: templating{[]variable{
			{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus"},
			{Name: "instance", Label: "Instance", Type: "query", Query: "label_values(envoy_rls_build_info, instance)", Datasource: source, Refresh: 2, IncludeAll: true, Multi: true, AllValue: ".*"},
			{Name: "policy", Label: "Policy", Type: "query", Query: "label_values(envoy_rls_decisions_total, policy)", Datasource: source, Refresh: 2, IncludeAll: true, Multi: true, AllValue: ".*"},
		}},
	}
	y := 0
	for _, s := range sections {
		b.add(panel{Type: "row", Title: s.title, GridPos: gridPos{1, 24, 0, y}})
		y = b.row(s.charts, source, y+1)
	}
	return b
}

func (b *board) add(p panel) {
	p.ID = len(b.Panels) + 1
	b.Panels = append(b.Panels, p)
}

// row lays charts out from left to right, and says where the next row begins.
func (b *board) row(charts []chart, source *datasource, y int) int {
	const height, columns = 8, 24
	zero := 0.0
	x := 0
	for _, c := range charts {
		p := panel{
			Type: c.kind, Title: c.title, Description: c.about, Datasource: source,
			FieldConfig: &fieldConfig{defaults{Unit: c.unit, Min: &zero}, []string{}},
		}
		width := 8
		switch c.kind {
		case "":
			p.Type = "timeseries"
			if c.wide {
				width = 12
			}
		case "stat":
			width = 4
		}
		if x+width > columns {
			x, y = 0, y+height
		}
		p.GridPos = gridPos{height, width, x, y}
		x += width
		for i, q := range c.queries {
			p.Targets = append(p.Targets, target{string(rune('A' + i)), q.expr, q.legend})
		}
		b.add(p)
	}
	return y + height
}
