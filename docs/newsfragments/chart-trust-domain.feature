An upgrade of the chart to another `trustDomain`, or an installation on data of another one, is refused before anything is changed.
