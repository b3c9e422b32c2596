"""The forms of the market, and SpanField: a duration entered as a number and a unit."""

from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from market.models import Sale
from market.templatetags.moments import span

UNITS = (("1", "seconds"), ("60", "minutes"), ("3600", "hours"), ("86400", "days"))


class SpanWidget(forms.MultiWidget):
    """A number box with a unit beside it."""

    template_name = "market/widgets/span.html"

    def __init__(self) -> None:
        number = forms.NumberInput(attrs={"aria-label": "How many", "min": 1, "step": 1, "inputmode": "numeric"})
        super().__init__([number, forms.Select(attrs={"aria-label": "Unit"}, choices=UNITS)])

    def decompress(self, value: timedelta | None) -> list[Any]:
        """Split a duration into a number and the largest unit that divides it."""
        if value is None:
            return [None, "60"]
        seconds = int(value.total_seconds())
        unit = next(unit for unit, _ in reversed(UNITS) if seconds % int(unit) == 0)
        return [seconds // int(unit), unit]


class SpanField(forms.MultiValueField):
    """A duration between two bounds, entered as "10 minutes"."""

    widget = SpanWidget

    def __init__(self, *, least: timedelta, most: timedelta, **options: Any) -> None:
        self.least, self.most = least, most
        # Without a maximum here, a large number would overflow timedelta before `compress` can reject it.
        number = forms.IntegerField(min_value=1, max_value=int(most.total_seconds()))
        super().__init__([number, forms.ChoiceField(choices=UNITS)], **options)

    def compress(self, data_list: list[Any]) -> timedelta | None:
        if not data_list:
            return None
        value = timedelta(seconds=data_list[0] * int(data_list[1]))
        if not self.least <= value <= self.most:
            raise ValidationError(f"Choose between {span(self.least)} and {span(self.most)}.")
        return value


def opens_in_field() -> SpanField:
    return SpanField(label="Opens in", least=timedelta(seconds=1), most=timedelta(days=60))


class SellForm(forms.ModelForm):
    """An item to sell, when it opens and for how long."""

    opens_in = opens_in_field()
    open_for = SpanField(label="Bids stay open for", least=timedelta(seconds=5), most=timedelta(days=14))

    class Meta:
        model = Sale
        fields = ("name", "kind", "description", "starting_price")
        widgets = {
            "name": forms.TextInput(attrs={"placeholder": "Silver compass of the north", "autocomplete": "off"}),
            "kind": forms.RadioSelect,
            "description": forms.Textarea(attrs={"rows": 3, "placeholder": "Where it comes from, what it can do…"}),
            "starting_price": forms.NumberInput(attrs={"min": 1, "max": 1_000_000, "inputmode": "numeric"}),
        }
        labels = {"starting_price": "Starting price, in gold", "kind": "What it is"}

    def clean_starting_price(self) -> int:
        price: int = self.cleaned_data["starting_price"]
        if not 1 <= price <= 1_000_000:
            raise ValidationError("Ask for 1 to 1,000,000 gold.")
        return price


class MoveForm(forms.Form):
    """A new opening for a sale that has not begun."""

    opens_in = opens_in_field()


class BidForm(forms.Form):
    """A bid. `sales.bid` decides under a lock whether it is high enough."""

    amount = forms.IntegerField(label="Your bid, in gold", min_value=1, max_value=100_000_000)
